"""Reads how config.json says that weights are quantised: GPTQ, AWQ, FP8 blocks.

Refuses by field and value what is not served: other bit widths, other layouts, settings that
differ from layer to layer. compressed-tensors has a file of its own. Pure: takes what was read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from minedraft.model_files import compressed_tensors
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

CONFIG_FIELD: Final = "quantization_config"


def read_quantisation(config: JsonObject) -> Quantisation | None:
    """Read `quantization_config` of a config.json.

    Returns:
        None if the weights are not quantised.

    Raises:
        ModelError: Not served; names the file, the field, what was found and what is wanted.
    """
    inner = config.part("text_config")
    for part, field in ((inner, CONFIG_FIELD), (inner, "compression_config"),
                        (config, "compression_config")):  # fmt: skip
        if part is not None and part.values.get(field) is not None:
            part.refuse(field, f"{CONFIG_FIELD} at the top of the file")
    settings = config.part(CONFIG_FIELD)
    if settings is None:
        return None
    readers = {
        "gptq": _read_gptq,
        "awq": _read_awq,
        "fp8": _read_fp8,
        compressed_tensors.METHOD: compressed_tensors.read_compressed_tensors,
    }
    method = settings.text("quant_method")
    if method not in readers:
        settings.refuse("quant_method", f"one of {', '.join(readers)}")
    return readers[method](settings)


def _read_gptq(settings: JsonObject) -> Quantisation:
    written = settings.text("checkpoint_format") or settings.text("format") or "gptq"
    if written not in {"gptq", "gptq_v2"}:
        field = "checkpoint_format" if settings.values.get("checkpoint_format") else "format"
        settings.refuse(field, "gptq or gptq_v2")
    if settings.flag("is_marlin_format", default=False):
        settings.refuse("is_marlin_format", "false")
    if settings.text("pack_dtype") not in {None, "int32"}:
        settings.refuse("pack_dtype", "int32")
    exceptions = settings.part("dynamic")
    # "-:" leaves layers out, which the tensors show; other rules give layers other settings.
    for rule in exceptions.values if exceptions is not None else ():
        if not rule.startswith("-:"):
            raise refusal(settings.path, settings.name("dynamic"), rule,
                          "the same settings for every quantised layer")  # fmt: skip
    settings.flag("desc_act", default=False)  # the order of the inputs is in `g_idx`
    return Quantisation(
        "gptq",
        Layout.GPTQ,
        read_bits(settings, "bits", 4, 8),
        read_group(settings),
        zeros_less_one=written == "gptq",
    )


def _read_awq(settings: JsonObject) -> Quantisation:
    bits = read_bits(settings, "bits", 4)
    for field in ("version", "format"):
        if (settings.text(field) or "gemm").lower() != "gemm":
            settings.refuse(field, "gemm")
    if settings.text("backend") == "llm-awq":
        settings.refuse("backend", "autoawq")
    if not settings.flag("zero_point", default=True):
        settings.refuse("zero_point", "true")
    return Quantisation("awq", Layout.AWQ, bits, read_group(settings))


def _read_fp8(settings: JsonObject) -> Quantisation:
    if settings.text("activation_scheme") not in {None, "dynamic"}:
        settings.refuse("activation_scheme", "dynamic")
    if settings.text("fmt") not in {None, "e4m3"}:
        settings.refuse("fmt", "e4m3")
    if settings.text("expert_dtype") not in {None, "fp8"}:
        settings.refuse("expert_dtype", "fp8")
    if settings.array("modules_to_convert"):
        settings.refuse("modules_to_convert", "none")
    block = read_block(settings, "weight_block_size")
    return Quantisation("fp8", Layout.FP8, 8, block=block, quantises_activations=True)
