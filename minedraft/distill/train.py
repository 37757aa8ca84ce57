"""Trains the student on the target's distribution at the answer positions.

It refuses to write files. Loss: a share of cross-entropy to the target's renormalised likeliest
tokens, the rest to its top token, over the vocabulary that occurs in the answers (the other tokens'
logits would cost most of the time and teach little).
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import torch
from torch.nn.functional import cross_entropy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor
    from transformers import PreTrainedModel

    from minedraft.distill.answers import Answer
    from minedraft.distill.options import DistillOptions
    from minedraft.hub.progress import Progress

_FINAL_RATE_SHARE: Final = 0.05
_CLIP_NORM: Final = 1.0
_REPORT_SHARE: Final = 0.1


@dataclass(frozen=True, slots=True)
class TrainReport:
    """Losses and agreement of a training run."""

    num_steps: int
    first_loss: float
    """Mean over the first tenth of the steps."""
    last_loss: float
    """Mean over the last tenth of the steps."""
    last_match: float
    """Share of positions where student and target have the same top token, last tenth, 0..1."""


def train(
    student: PreTrainedModel,
    answers: Sequence[Answer],
    options: DistillOptions,
    progress: Progress,
) -> TrainReport:
    """Train in place.

    Args:
        student: fp32; parameters that ask for no gradient stay as they are.
        answers: At least one.
        options: Of this distillation.
        progress: Told the steps done.
    """
    vocabulary = torch.unique(torch.cat([a.top_ids.flatten() for a in answers]))  # [S], ascending
    head = student.lm_head.weight.detach()[vocabulary.to(student.device)]  # [S, hidden]
    batches = _plan(answers, options)
    optimizer = torch.optim.AdamW(
        [p for p in student.parameters() if p.requires_grad],
        lr=options.peak_learning_rate,
        betas=(0.9, 0.95),
        weight_decay=0.01,
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: _rate_share(step, options.warmup_steps, len(batches))
    )
    losses: list[float] = []
    matches: list[float] = []
    student.train()
    for done, batch in enumerate(batches):
        progress("training steps", done, len(batches), "items")
        with torch.autocast(student.device.type, torch.bfloat16):
            logits, ids, logprobs = _forward(student, [answers[i] for i in batch], head)
        classes = torch.searchsorted(vocabulary.to(ids.device), ids)  # [A, n] rows of the head
        loss = _loss(logits.float(), classes, logprobs, options.soft_share)
        optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(student.parameters(), _CLIP_NORM)
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
        matches.append((logits.argmax(-1) == classes[:, 0]).float().mean().item())
    progress("training steps", len(batches), len(batches), "items")
    student.eval()
    span = max(1, int(len(batches) * _REPORT_SHARE))
    return TrainReport(
        num_steps=len(batches),
        first_loss=sum(losses[:span]) / span,
        last_loss=sum(losses[-span:]) / span,
        last_match=sum(matches[-span:]) / span,
    )


def _forward(
    student: PreTrainedModel, answers: Sequence[Answer], head: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Train on a batch.

    Returns:
        Logits over the vocabulary that occurs [A, S], the target's ids [A, n] and log-probabilities
        [A, n], A over the answers of the batch in order.
    """
    device = student.device
    width = max(len(a.token_ids) for a in answers) - 1
    inputs = torch.zeros(len(answers), width, dtype=torch.long)
    mask = torch.zeros(len(answers), width, dtype=torch.long)
    is_answer = torch.zeros(len(answers), width, dtype=torch.bool)
    for row, answer in enumerate(answers):
        length = len(answer.token_ids) - 1  # the last token predicts nothing
        inputs[row, :length] = answer.token_ids[:-1]
        mask[row, :length] = 1
        is_answer[row, answer.num_prompt_tokens - 1 : length] = True
    hidden = student.model(
        input_ids=inputs.to(device), attention_mask=mask.to(device), use_cache=False
    ).last_hidden_state  # [B, T, hidden]
    logits = hidden[is_answer.to(device)] @ head.T.to(hidden.dtype)  # [A, S]
    ids = torch.cat([a.top_ids for a in answers]).to(device)
    return logits, ids, torch.cat([a.top_logprobs for a in answers]).to(device)


def _loss(logits: Tensor, classes: Tensor, logprobs: Tensor, soft_share: float) -> Tensor:
    """Mix soft and hard cross-entropy.

    Args:
        logits: [A, S] float32.
        classes: [A, n] int64, columns of ``logits``; the first is the target's top token.
        logprobs: [A, n] float32, not normalised over n.
        soft_share: 0..1.
    """
    soft = -(logprobs.softmax(-1) * logits.log_softmax(-1).gather(-1, classes)).sum(-1).mean()
    return soft_share * soft + (1 - soft_share) * cross_entropy(logits, classes[:, 0])


def _plan(answers: Sequence[Answer], options: DistillOptions) -> list[list[int]]:
    """Return the indices of each batch: similar lengths together, batches in random order."""
    lengths = [len(a.token_ids) for a in answers]
    draw = random.Random(options.seed)
    batches: list[list[int]] = []
    for _ in range(math.ceil(options.epochs)):
        # A little noise in the order, so that batches differ from epoch to epoch.
        order = sorted(range(len(answers)), key=lambda i: lengths[i] * draw.uniform(0.9, 1.1))
        epoch: list[list[int]] = [[]]
        for index in order:
            filled = sum(lengths[i] for i in epoch[-1])
            if epoch[-1] and filled + lengths[index] > options.tokens_per_batch:
                epoch.append([])
            epoch[-1].append(index)
        draw.shuffle(epoch)
        batches += epoch
    per_epoch = len(batches) / math.ceil(options.epochs)
    return batches[: max(1, round(per_epoch * options.epochs))]


def _rate_share(step: int, warmup_steps: int, num_steps: int) -> float:
    """Return the share of the peak rate: linear warm-up, then a cosine down to 5 %."""
    if step < warmup_steps:
        return (step + 1) / warmup_steps
    done = (step - warmup_steps) / max(1, num_steps - warmup_steps)
    cosine = (1 + math.cos(math.pi * min(1.0, done))) / 2
    return _FINAL_RATE_SHARE + (1 - _FINAL_RATE_SHARE) * cosine
