"""Builds transformers' model of a quantised directory, without transformers' quantisers.

Layers whose weight can stay packed become `QuantisedLinear`; everything else is read, dequantised
and handed to transformers tensor by tensor. Refuses layers of another shape than the model's, and
biases that the model would ignore.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import torch
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM

from minedraft.errors import ModelError
from minedraft.model.attention import ATTENTION_NAME
from minedraft.model.quantised.grouped import GroupedWeight
from minedraft.model.quantised.linear import QuantisedLinear
from minedraft.model.quantised.sources import GgufSource, SafetensorsSource
from minedraft.model_files.quantisation_config import CONFIG_FIELD

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from torch import Tensor
    from transformers import PreTrainedConfig, PreTrainedModel

    from minedraft.model.directory import ModelDirectory
    from minedraft.model.quantised.sources import Source


def read_quantised_model(
    directory: ModelDirectory, dtype: torch.dtype, *, packed: bool
) -> tuple[PreTrainedModel, dict[str, Any]]:
    """Load a model whose weights are quantised.

    Args:
        directory: Checked, with `is_quantised`.
        dtype: Of what is not packed.
        packed: Keep integer weights packed, in `QuantisedLinear`, and others that are quantised in
            bfloat16; False: dequantise all, to `dtype`.

    Returns:
        The model and transformers' report of what was missing.

    Raises:
        ModelError: A layer has another shape than the model's, or numbers that cannot be.
    """
    config = AutoConfig.from_pretrained(
        directory.path, trust_remote_code=False, local_files_only=True
    )
    if hasattr(config, CONFIG_FIELD):
        delattr(config, CONFIG_FIELD)  # else transformers looks for a quantiser of its own
    if "lm_head" in directory.layers:
        config.tie_word_embeddings = False  # the head is no embedding any more
    with torch.device("meta"):
        skeleton = AutoModelForCausalLM.from_config(config)
    source = _source(directory, config, skeleton)
    names = _replaceable(directory, skeleton, source) if packed else ()
    model, report = _with_quantised(type(skeleton), names).from_pretrained(
        None,
        config=config,
        state_dict={n: _Later(read) for n, read in source.tensors(names).items()},
        dtype=dtype,
        attn_implementation=ATTENTION_NAME,
        local_files_only=True,
        output_loading_info=True,
    )
    _refuse_lost_biases(directory, source, report["unexpected_keys"])
    for name in names:
        _fill(model, name, source.read(name))
    if packed:
        _narrow(model)
    return model, report


class _Later:
    """A tensor that is read when transformers slices it, as it does with safetensors."""

    def __init__(self, read: Callable[[], Tensor]) -> None:
        self._read = read

    def __getitem__(self, index: object) -> Tensor:
        return self._read()[index]  # type: ignore[index]


def _source(
    directory: ModelDirectory, config: PreTrainedConfig, skeleton: PreTrainedModel
) -> Source:
    if directory.quantisation is not None:
        return SafetensorsSource(directory, directory.quantisation)
    return GgufSource(directory, config.get_text_config(decoder=True), skeleton.state_dict())


def _replaceable(
    directory: ModelDirectory, skeleton: PreTrainedModel, source: Source
) -> Collection[str]:
    """Return the linear layers whose weight is quantised."""
    names: list[str] = []
    for name, module in skeleton.named_modules():
        shape = source.layers.get(name)
        if shape is None or type(module) is not nn.Linear:
            continue
        if shape != (module.out_features, module.in_features):
            raise ModelError(
                f"model {directory.path}: {name} has {shape[0]} x {shape[1]} quantised weights, "
                f"want {module.out_features} x {module.in_features}, as config.json says"
            )
        names.append(name)
    return names


def _with_quantised(kind: type[PreTrainedModel], names: Collection[str]) -> type[PreTrainedModel]:
    """Return the class of a model whose layers of these names are quantised ones.

    transformers loads what the class has built, so the layers must be there before it does.
    """

    def build(self: PreTrainedModel, config: PreTrainedConfig, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 whatever the class takes
        kind.__init__(self, config, *args, **kwargs)
        for name in names:
            self.set_submodule(name, QuantisedLinear(self.get_submodule(name)))

    # Name and module stay: transformers looks classes up by them.
    members = {"__init__": build, "__module__": kind.__module__, "__doc__": kind.__doc__}
    return type(kind.__name__, (kind,), members)


def _fill(model: PreTrainedModel, name: str, weight: GroupedWeight | Tensor) -> None:
    """Give a layer its weight; one that no kernel keeps packed becomes an ordinary one again."""
    layer = cast("QuantisedLinear", model.get_submodule(name))
    if isinstance(weight, GroupedWeight):
        layer.fill(weight)
        return
    linear = nn.Linear(layer.in_features, layer.out_features, bias=False, device="meta")
    linear.weight = nn.Parameter(weight, requires_grad=False)
    if layer.bias is not None:
        linear.bias = layer.bias
    model.set_submodule(name, linear)


def _narrow(model: PreTrainedModel) -> None:
    """Keep in bfloat16 what it can hold exactly: embeddings and heads, mostly."""
    for parameter in model.parameters():
        if parameter.dtype == torch.float32 and parameter.dim() > 1:
            narrow = parameter.data.to(torch.bfloat16)
            if torch.equal(narrow.to(torch.float32), parameter.data):
                parameter.data = narrow


def _refuse_lost_biases(
    directory: ModelDirectory, source: Source, unexpected: Collection[str]
) -> None:
    """Some quantisers write a bias of zeros for layers that have none; others than zero count."""
    tensors = source.tensors(())
    for name in unexpected:
        if name.endswith(".bias") and name in tensors and bool(tensors[name]().any()):
            raise ModelError(f"model {directory.path}: {name} has no place in the model")
