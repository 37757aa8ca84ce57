"""Runs `minedraft distill`, from prompts to a drafter on disk.

It refuses to measure acceptance on its training prompts: that is `acceptance`, with other prompts.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import structlog
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from minedraft.distill.answers import collect_answers, encode_prompts
from minedraft.distill.student import choose_layers, make_student, save_layers
from minedraft.distill.train import train
from minedraft.errors import ModelError
from minedraft.hub.assemble import assemble
from minedraft.hub.progress import no_progress
from minedraft.model.directory import open_directory
from minedraft.model_files.json_file import one_line

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from minedraft.distill.options import DistillOptions
    from minedraft.distill.train import TrainReport
    from minedraft.hub.progress import Progress

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Distilled:
    """The directories that a distillation made."""

    layers_dir: Path
    """config.json, model.safetensors (layers and final norm only) and distill.json."""
    complete_dir: Path | None
    """Loads like any model; None if it was not asked for."""
    report: TrainReport


def run_distill(
    options: DistillOptions, prompts: Sequence[str], *, progress: Progress = no_progress
) -> Distilled:
    """Make a drafter from a target.

    Run again with the same output, it continues with the answers of the first run.

    Args:
        options: All settings.
        prompts: Texts the drafter will be asked, or like them; not those it will be measured on.
        progress: Told answers and steps done.

    Raises:
        ConfigError: A setting does not fit the target, or no prompt is short enough.
        ModelError: The target cannot be read, or its head is more than one matrix.
    """
    open_directory(options.target)  # refuses by file and field what transformers would trip over
    try:
        tokenizer = AutoTokenizer.from_pretrained(options.target, local_files_only=True)
        target = AutoModelForCausalLM.from_pretrained(
            options.target, local_files_only=True, use_safetensors=True, dtype="auto"
        )
    except Exception as error:  # whatever a class of transformers raises at a value
        raise ModelError(f"target {options.target} cannot be read: {one_line(error)}") from error
    stored_dtype = target.dtype
    layers = choose_layers(options.layers, target.config.num_hidden_layers)
    target = target.to(options.device).eval()
    student = make_student(target, layers).to(options.device)  # refuses before hours of answers
    encoded = encode_prompts(tokenizer, prompts, options)
    answers = collect_answers(target, encoded, options, progress)
    del target
    torch.manual_seed(options.seed)
    report = train(student, answers, options, progress)
    save_layers(student, options.output, stored_dtype)
    record = {
        "options": {**asdict(options), "layers": layers},
        "num_answers": len(answers),
        "num_answer_tokens": sum(len(a.top_ids) for a in answers),
        "training": asdict(report),
    }
    (options.output / "distill.json").write_text(json.dumps(record, indent=1, default=str) + "\n")
    complete = options.output / "complete" if options.assemble else None
    if complete is not None:
        shutil.rmtree(complete, ignore_errors=True)
        complete.mkdir()
        assemble(options.output, options.target, complete)
    log.info(
        "distill.done", output=str(options.output), loss=report.last_loss, match=report.last_match
    )
    return Distilled(options.output, complete, report)
