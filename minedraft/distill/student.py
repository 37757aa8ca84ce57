"""The student: layers and final norm copied from the target, on its embedding and head.

It refuses targets whose head is more than one matrix (a bias, a soft cap): training would learn
another distribution than the one that is served.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, Final

import torch
from transformers import AutoModelForCausalLM

from minedraft.errors import ConfigError, ModelError
from minedraft.hub.gguf_to_safetensors import save_model

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from transformers import PreTrainedModel

_LAYER_PREFIX: Final = "model.layers."
_SHARED: Final = ("model.embed_tokens.", "lm_head.")
_HEAD_EXTRAS: Final = ("final_logit_softcapping", "logit_scale", "logits_scaling")


def choose_layers(layers: Sequence[int], num_layers: int) -> tuple[int, ...]:
    """Choose the layers to start from; by default the first three and the last.

    Raises:
        ConfigError: One of them is not in the target.
    """
    chosen = tuple(layers) or tuple(sorted({*range(min(3, num_layers)), num_layers - 1}))
    if max(chosen) >= num_layers:
        raise ConfigError(f"distill layers {chosen}: the target has layers 0..{num_layers - 1}")
    return chosen


def make_student(target: PreTrainedModel, layers: Sequence[int]) -> PreTrainedModel:
    """Build the student in fp32, embedding and head frozen.

    Args:
        target: On any device, left as it is.
        layers: Ascending, all of them in the target.

    Raises:
        ModelError: The target's head is more than one matrix.
    """
    config: Any = copy.deepcopy(target.config)
    extras = [name for name in _HEAD_EXTRAS if getattr(config, name, None) not in (None, 1.0)]
    if extras or target.lm_head.bias is not None:
        raise ModelError(f"target {config.model_type}: its head has {extras or 'a bias'}")
    config.num_hidden_layers = len(layers)
    if getattr(config, "layer_types", None):
        config.layer_types = [config.layer_types[i] for i in layers]
    student: PreTrainedModel = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    weights = {}
    for name, value in target.state_dict().items():
        renamed = _student_name(name, layers)
        if renamed is not None:
            weights[renamed] = value.float()
    student.load_state_dict(weights)
    student.tie_weights()
    for name, parameter in student.named_parameters():
        parameter.requires_grad_(not name.startswith(_SHARED))
    return student


def save_layers(student: PreTrainedModel, directory: Path, dtype: torch.dtype) -> None:
    """Write config.json and model.safetensors without embedding and head.

    Args:
        student: As trained, fp32.
        directory: Exists; the two files are replaced.
        dtype: Stored type, the target's.
    """
    weights = {
        name: value.detach().to("cpu", dtype).contiguous()
        for name, value in student.state_dict().items()
        if not name.startswith(_SHARED)
    }
    save_model(student, weights, directory)


def _student_name(name: str, layers: Sequence[int]) -> str | None:
    """Return the student's name for a tensor of the target; None if it has none."""
    if not name.startswith(_LAYER_PREFIX):
        return name
    number, rest = name.removeprefix(_LAYER_PREFIX).split(".", 1)
    if int(number) not in layers:
        return None
    return f"{_LAYER_PREFIX}{layers.index(int(number))}.{rest}"
