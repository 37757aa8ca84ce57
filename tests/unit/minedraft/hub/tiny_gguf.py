"""Tiny GGUF files for tests, written with llama.cpp's own library from a model the test holds."""

from __future__ import annotations

import json
from pathlib import Path

import gguf
import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedModel

CHAT_TEMPLATE = "{% for m in messages %}<|im_start|>{{ m['content'] }}<|im_end|>{% endfor %}"
SPECIAL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
NUM_PADDING_ROWS = 5
_CORPUS = ("the fox\n\n1 dog  22 runs", "don't the dog\n\n runs\n\n the fox  dog café café") * 4


def tiny_vocabulary() -> tuple[list[str], list[int], list[str]]:
    """Tokens, GGUF token types and merges of a byte-level BPE, padding rows at the end."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=290,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_CORPUS, trainer)
    by_id = {index: token for token, index in tokenizer.get_vocab().items()}
    tokens = [by_id[i] for i in range(len(by_id))]
    types = [3 if token in SPECIAL_TOKENS else 1 for token in tokens]
    tokens += [f"[PAD{len(tokens) + i}]" for i in range(NUM_PADDING_ROWS)]
    types += [5] * NUM_PADDING_ROWS
    merges = [" ".join(pair) for pair in json.loads(tokenizer.to_str())["model"]["merges"]]
    return tokens, types, merges


def write_gguf(
    path: Path,
    model: PreTrainedModel,
    *,
    pre: str = "smollm",
    architecture: str | None = None,
    chat_template: str | None = CHAT_TEMPLATE,
    drop: str | None = None,
    add: str | None = None,
) -> None:
    """Write a model as llama.cpp's converter does.

    Args:
        path: The file.
        model: Llama or Qwen2, fp32, with a vocabulary as long as `tiny_vocabulary`.
        pre: Name of the pre-tokenizer.
        architecture: Written instead of the model's.
        chat_template: None leaves it out.
        drop: Name of a GGUF tensor to leave out.
        add: Name of a GGUF tensor to add.
    """
    config = model.config
    writer = gguf.GGUFWriter(path, architecture or config.model_type)
    writer.add_name("Tiny")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_vocab_size(config.vocab_size)
    if config.model_type == "llama":
        writer.add_rope_dimension_count(config.head_dim)
    _add_tokenizer(writer, pre, chat_template)
    names = gguf.get_tensor_name_map(
        gguf.MODEL_ARCH.LLAMA if config.model_type == "llama" else gguf.MODEL_ARCH.QWEN2,
        config.num_hidden_layers,
    )
    for name, value in model.state_dict().items():
        stem, suffix = name.rsplit(".", 1)
        gguf_name = f"{names.get_name(stem)}.{suffix}"
        is_tied = config.tie_word_embeddings and stem == "lm_head"
        if gguf_name == drop or is_tied:
            continue
        data = value.float().numpy()
        if config.model_type == "llama" and stem.endswith(("q_proj", "k_proj")):
            heads = "num_attention_heads" if stem.endswith("q_proj") else "num_key_value_heads"
            data = _rotary_order_of_llama_cpp(data, getattr(config, heads))
        if stem.endswith("down_proj"):  # one quantised kind among them
            quantised = gguf.quantize(data, gguf.GGMLQuantizationType.Q8_0)
            writer.add_tensor(gguf_name, quantised, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
        else:
            writer.add_tensor(gguf_name, np.ascontiguousarray(data))
    if add is not None:
        writer.add_tensor(add, np.ones(4, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_tokenizer(writer: gguf.GGUFWriter, pre: str, chat_template: str | None) -> None:
    tokens, types, merges = tiny_vocabulary()
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges(merges)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_pad_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_add_bos_token(False)
    if chat_template is not None:
        writer.add_chat_template(chat_template)


def _rotary_order_of_llama_cpp(rows: np.ndarray, num_heads: int) -> np.ndarray:
    """What llama.cpp's converter calls permute."""
    halves = rows.reshape(num_heads, 2, rows.shape[0] // num_heads // 2, *rows.shape[1:])
    return halves.swapaxes(1, 2).reshape(rows.shape)
