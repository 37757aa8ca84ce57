"""Training data: the target's own answers, and its log-probabilities at every token of them.

It refuses to train, and to go on with answers of other prompts or settings. Each batch is a file,
written whole, so that an interrupted run continues where it was.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import torch
from safetensors.torch import load_file, save_file

from minedraft.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from torch import Tensor
    from transformers import PreTrainedModel

    from minedraft.distill.options import DistillOptions
    from minedraft.hub.progress import Progress


_DECIDING_OPTIONS: Final = (
    "max_new_tokens",
    "generation_batch",
    "greedy_share",
    "temperature",
    "num_logprobs",
    "seed",
)


@dataclass(frozen=True, slots=True)
class Answer:
    """A prompt with the target's answer to it."""

    token_ids: Tensor
    """[P + A] int64: prompt, then answer."""
    num_prompt_tokens: int
    """P >= 1. Position P - 1 + i is the one that predicts answer token i."""
    top_ids: Tensor
    """[A, n] int64: the target's n likeliest tokens at each answer position, likeliest first."""
    top_logprobs: Tensor
    """[A, n] float32."""


def encode_prompts(
    tokenizer: Any,  # noqa: ANN401 (each model family has a class of its own)
    prompts: Sequence[str],
    options: DistillOptions,
) -> list[list[int]]:
    """Tokenize the prompts with the chat template, shortest first; drop those that are too long.

    Raises:
        ConfigError: None is left.
    """
    if tokenizer.chat_template:
        encoded = [
            tokenizer.apply_chat_template(
                [{"role": "user", "content": prompt}], add_generation_prompt=True, return_dict=False
            )
            for prompt in prompts
        ]
    else:
        encoded = [tokenizer.encode(prompt) for prompt in prompts]
    fitting = [ids for ids in encoded if 0 < len(ids) <= options.max_prompt_tokens]
    if not fitting:
        raise ConfigError(
            f"distill: none of {len(prompts)} prompts has 1..{options.max_prompt_tokens} tokens"
        )
    return sorted(fitting, key=len)  # alike lengths together: little padding


def collect_answers(
    target: PreTrainedModel,
    prompts: Sequence[list[int]],
    options: DistillOptions,
    progress: Progress,
) -> list[Answer]:
    """Let the target answer, or read the answers of an earlier run.

    Args:
        target: In evaluation mode.
        prompts: Token ids, shortest first.
        options: Of this distillation.
        progress: Told the prompts done.

    Raises:
        ConfigError: The output holds answers of other prompts or settings.
    """
    directory = options.output / "answers"
    _claim(directory, prompts, options)
    answers: list[Answer] = []
    for first in range(0, len(prompts), options.generation_batch):
        progress("answers of the target", first, len(prompts), "items")
        batch = prompts[first : first + options.generation_batch]
        path = directory / f"{first:06d}.safetensors"
        if not path.exists():
            # Greedy and sampled batches take turns in proportion, so both see all prompt lengths.
            turn = first // options.generation_batch
            is_greedy = int((turn + 1) * options.greedy_share) > int(turn * options.greedy_share)
            sequences = _generate(target, batch, options, is_greedy=is_greedy, seed=first)
            scored = [
                _score(target, token_ids, len(prompt), options)
                for token_ids, prompt in zip(sequences, batch, strict=True)
            ]
            _save(path, scored)
        answers += _load(path)
    progress("answers of the target", len(prompts), len(prompts), "items")
    return answers


def _claim(directory: Path, prompts: Sequence[list[int]], options: DistillOptions) -> None:
    """Make the directory, or check that it holds the same answers."""
    source = {
        "target": str(options.target),
        "prompts": hashlib.sha256(json.dumps(prompts).encode()).hexdigest(),
        **{name: getattr(options, name) for name in _DECIDING_OPTIONS},
    }
    path = directory / "source.json"
    directory.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        path.write_text(json.dumps(source, indent=1))
    found = json.loads(path.read_text())
    differing = sorted(name for name in source if found.get(name) != source[name])
    if differing:
        raise ConfigError(
            f"distill output {directory}: it holds answers of another {', '.join(differing)}; "
            "delete it or choose another output"
        )


def _generate(
    target: PreTrainedModel,
    prompts: Sequence[list[int]],
    options: DistillOptions,
    *,
    is_greedy: bool,
    seed: int,
) -> list[list[int]]:
    """Return prompt and answer of each row, with the end token, without padding."""
    width = max(map(len, prompts))
    ends = target.generation_config.eos_token_id
    end_ids = set(ends if isinstance(ends, list) else [] if ends is None else [ends])
    pad = min(end_ids, default=0)
    ids = torch.tensor([[pad] * (width - len(p)) + p for p in prompts])
    mask = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in prompts])
    torch.manual_seed(options.seed + seed)
    out = target.generate(
        input_ids=ids.to(target.device),
        attention_mask=mask.to(target.device),
        max_new_tokens=options.max_new_tokens,
        pad_token_id=pad,
        do_sample=not is_greedy,
        **({} if is_greedy else {"temperature": options.temperature, "top_k": 0, "top_p": 1.0}),
    )
    sequences = []
    for prompt, row in zip(prompts, out[:, width:].tolist(), strict=True):
        length = next((i + 1 for i, token in enumerate(row) if token in end_ids), len(row))
        sequences.append(prompt + row[:length])
    return sequences


@torch.inference_mode()
def _score(
    target: PreTrainedModel, token_ids: list[int], num_prompt_tokens: int, options: DistillOptions
) -> Answer:
    """Compute the target's likeliest tokens at every answer position, at temperature 1."""
    ids = torch.tensor(token_ids)
    num_answer_tokens = len(token_ids) - num_prompt_tokens
    # The last token predicts nothing that is kept; the head runs on the answer positions alone.
    out = target(ids[None, :-1].to(target.device), logits_to_keep=num_answer_tokens)
    logprobs = out.logits[0].float().log_softmax(-1)  # [A, V]
    top = logprobs.topk(min(options.num_logprobs, logprobs.shape[-1]), dim=-1)
    return Answer(ids, num_prompt_tokens, top.indices.cpu(), top.values.cpu())


def _save(path: Path, answers: Sequence[Answer]) -> None:
    """Write a batch atomically."""
    tensors = {}
    for i, answer in enumerate(answers):
        tensors[f"{i:04d}.token_ids"] = answer.token_ids.int()
        tensors[f"{i:04d}.num_prompt_tokens"] = torch.tensor(answer.num_prompt_tokens)
        tensors[f"{i:04d}.top_ids"] = answer.top_ids.int().contiguous()
        tensors[f"{i:04d}.top_logprobs"] = answer.top_logprobs.half().contiguous()
    temporary = path.with_suffix(".tmp")
    save_file(tensors, temporary)
    temporary.replace(path)


def _load(path: Path) -> list[Answer]:
    """Read a batch."""
    tensors = load_file(path)
    return [
        Answer(
            tensors[f"{i:04d}.token_ids"].long(),
            int(tensors[f"{i:04d}.num_prompt_tokens"]),
            tensors[f"{i:04d}.top_ids"].long(),
            tensors[f"{i:04d}.top_logprobs"].float(),
        )
        for i in range(len(tensors) // 4)
    ]
