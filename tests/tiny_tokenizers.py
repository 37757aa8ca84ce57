"""Tiny tokenizers on disk for tests, one of each kind that causal language models have.

Refuses torch and transformers, so that tests of the text side can prove that it needs neither.
"""

from __future__ import annotations

import json
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers
from tokenizers.processors import TemplateProcessing
from tokenizers.trainers import BpeTrainer

CORPUS = (
    "Hello world, hello there: the quick brown fox jumps over the lazy dog.",
    "Hello. world is what a model says; stop the world, I want to get off!",
    "drafts and verifies, 你好 世界, naïve café, 😀 😁 family",
) * 4
BOS, EOS, TURN = "<s>", "</s>", "<|turn|>"
CHAT_TEMPLATE = (
    "{% for m in messages %}<|turn|>{{ m.role }}\n{{ m.content }}{{ eos_token }}\n{% endfor %}"
    "{% if add_generation_prompt %}<|turn|>assistant\n{% endif %}"
)


def byte_level() -> Tokenizer:
    """GPT-2's kind: Llama 3, Qwen, SmolLM. No special tokens added to text."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = BpeTrainer(
        vocab_size=400,
        special_tokens=[BOS, EOS, TURN],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.add_tokens([AddedToken("ünder scored", normalized=False)])
    return tokenizer


def sentencepiece(*, strip: bool = True) -> Tokenizer:
    """Llama 2's kind (and Mistral, Phi-3; without `strip` Gemma): byte fallback, dummy space."""
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    prepend = [normalizers.Prepend("▁")] if strip else []
    tokenizer.normalizer = normalizers.Sequence([*prepend, normalizers.Replace(" ", "▁")])
    trainer = BpeTrainer(
        vocab_size=420,
        special_tokens=["<unk>", BOS, EOS, TURN, *(f"<0x{byte:02X}>" for byte in range(256))],
        limit_alphabet=50,
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    # The trainer makes byte tokens special; in real files they are plain entries.
    document = json.loads(tokenizer.to_str())
    document["added_tokens"] = [t for t in document["added_tokens"] if "<0x" not in t["content"]]
    tokenizer = Tokenizer.from_str(json.dumps(document))
    stages = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence(
        [*stages, *([decoders.Strip(" ", 1, 0)] if strip else [])]
    )
    tokenizer.post_processor = TemplateProcessing(
        single=f"{BOS} $A", special_tokens=[(BOS, tokenizer.token_to_id(BOS))]
    )
    return tokenizer


def metaspace() -> Tokenizer:
    """XGLM's and T5's kind: a Metaspace decoder, and no bytes to fall back to."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    trainer = BpeTrainer(
        vocab_size=200, special_tokens=["<unk>", BOS, EOS, TURN], show_progress=False
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    return tokenizer


def wordpiece() -> Tokenizer:
    """BERT's kind: its decoder looks at neighbours."""
    words = ["[UNK]", BOS, EOS, "hello", "world", "un", "##hap", "##py", ",", ".", "��", "say"]
    tokenizer = Tokenizer(
        models.WordPiece({word: index for index, word in enumerate(words)}, unk_token="[UNK]")
    )
    tokenizer.add_special_tokens([BOS, EOS])
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    return tokenizer


KINDS = {
    "byte-level": byte_level,
    "sentencepiece": sentencepiece,
    "gemma": lambda: sentencepiece(strip=False),
    "metaspace": metaspace,
    "wordpiece": wordpiece,
}
"""Name to builder."""


def write(tokenizer: Tokenizer, directory: Path, **config: object) -> Path:
    """Write a tokenizer as a model directory has it, with a chat template."""
    directory.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(directory / "tokenizer.json"))
    settings = {"bos_token": BOS, "eos_token": EOS, "chat_template": CHAT_TEMPLATE, **config}
    (directory / "tokenizer_config.json").write_text(
        json.dumps({name: value for name, value in settings.items() if value is not None}),
        encoding="utf-8",
    )
    return directory


def id_of(tokenizer, token: str) -> int:
    """Look up the id that the product's tokenizer gives a token."""
    return next(i for i in range(tokenizer.vocab_size) if tokenizer.token(i) == token)
