"""Reads the settings of the compressed-tensors format.

Refuses by field and value what is not served: several groups of settings, sparse weights, other
number formats, activations quantised with scales of their own, quantised keys and values. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from minedraft.model_files.json_file import refusal
from minedraft.model_files.quantisation import (
    Layout,
    Quantisation,
    read_bits,
    read_block,
    read_group,
)

if TYPE_CHECKING:
    from minedraft.model_files.json_file import JsonObject

METHOD: Final = "compressed-tensors"
_LAYOUTS: Final = {
    "pack-quantized": Layout.PACKED,
    "int-quantized": Layout.INT8,
    "float-quantized": Layout.FP8_SCALED,
    "naive-quantized": None,  # whatever `type` says
}


def read_compressed_tensors(settings: JsonObject) -> Quantisation:
    """Read the settings of one scheme for all linear layers.

    Raises:
        ModelError: Not served; names the file, the field, what was found and what is wanted.
    """
    if settings.text("quantization_status") not in {None, "compressed"}:
        settings.refuse("quantization_status", "compressed")
    _refuse_parts(settings, ("kv_cache_scheme", "transform_config"))
    sparsity = settings.part("sparsity_config")
    if sparsity is not None and sparsity.values and sparsity.text("format") != "dense":
        sparsity.refuse("format", "dense")
    scheme = _only_scheme(settings)
    _refuse_parts(scheme, ("output_activations",))
    quantises_activations = _check_activations(scheme)
    weights = scheme.part("weights")
    if weights is None:
        scheme.refuse("weights", "an object")
    layout = _layout(settings, scheme, weights)
    bits = read_bits(weights, "num_bits", *((4, 8) if layout is Layout.PACKED else (8,)))
    if weights.values.get("dynamic"):
        weights.refuse("dynamic", "false")
    group, block = _scope(weights, layout)
    return Quantisation(
        METHOD, layout, bits, group, block, quantises_activations=quantises_activations
    )


def _only_scheme(settings: JsonObject) -> JsonObject:
    groups = settings.part("config_groups")
    if groups is None or len(groups.values) != 1:
        found = 0 if groups is None else len(groups.values)
        raise refusal(settings.path, settings.name("config_groups"), found,
                      "one group of settings, for all linear layers")  # fmt: skip
    name = next(iter(groups.values))
    scheme = groups.part(name)
    if scheme is None:
        groups.refuse(name, "an object")
    return scheme


def _refuse_parts(part: JsonObject, fields: tuple[str, ...]) -> None:
    for field in fields:
        if part.values.get(field):
            part.refuse(field, "none")


def _check_activations(scheme: JsonObject) -> bool:
    """Whether the checkpoint asks for quantised activations; only such as need no scales."""
    inputs = scheme.part("input_activations")
    if inputs is None:
        return False
    if inputs.values.get("dynamic") is not True:
        inputs.refuse("dynamic", "true")
    return True


def _layout(settings: JsonObject, scheme: JsonObject, weights: JsonObject) -> Layout:
    source = scheme if scheme.text("format") else settings
    written = source.text("format")
    if written not in _LAYOUTS:
        source.refuse("format", f"one of {', '.join(_LAYOUTS)}")
    kind = weights.text("type") or "int"
    layout = _LAYOUTS[written] or (Layout.FP8_SCALED if kind == "float" else Layout.INT8)
    wanted = "float" if layout is Layout.FP8_SCALED else "int"
    if kind != wanted:
        weights.refuse("type", f"{wanted}, as {written} has")
    return layout


def _scope(weights: JsonObject, layout: Layout) -> tuple[int | None, tuple[int, int] | None]:
    """Return the inputs per scale and the block per scale."""
    strategy = weights.text("strategy") or (
        "tensor" if weights.values.get("group_size") is None
        else "channel" if weights.values["group_size"] == -1 else "group"
    )  # fmt: skip
    served = {
        Layout.PACKED: ("group", "channel"),
        Layout.INT8: ("channel", "tensor"),
        Layout.FP8_SCALED: ("channel", "tensor", "block"),
    }[layout]
    if strategy not in served:
        weights.refuse("strategy", f"one of {', '.join(served)}")
    if strategy == "group":
        group = read_group(weights)
        if group is None:
            weights.refuse("group_size", "inputs per scale, as strategy group has")
        return group, None
    if strategy == "block":
        return None, read_block(weights, "block_structure")
    return None, None
