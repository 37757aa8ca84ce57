"""Turns a model directory into a `ModelRunner`, and proves that it computes the right logits.

Refuses anything the paged attention cannot honour, weights that are missing or misshapen, pickles
and remote code: always a ModelError that names the directory and the reason.
"""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, cast

import structlog
import torch
from transformers import (
    CONFIG_MAPPING,
    MODEL_FOR_CAUSAL_LM_MAPPING,
    AutoConfig,
    AutoModelForCausalLM,
)
from transformers.utils import logging as transformers_logging

from minedraft.errors import ModelError
from minedraft.model.architecture import max_model_len, probe, refuse_config
from minedraft.model.attention import ATTENTION_NAME
from minedraft.model.blocks.own_forward import widened
from minedraft.model.blocks.replace import Arithmetic, put_on_kernels
from minedraft.model.device_words import device_words
from minedraft.model.directory import open_directory
from minedraft.model.dtype import settle_dtype
from minedraft.model.kernels import select
from minedraft.model.kv_pool import KVPool
from minedraft.model.parallel.group import together
from minedraft.model.parallel.plan import share_heads
from minedraft.model.parallel.shard import shard_model
from minedraft.model.quantised.model import read_quantised_model
from minedraft.model.runner import ModelRunner
from minedraft.model.self_test import blocks_needed, compare, reference
from minedraft.model.stored_dtype import restore_buffers, stored_dtype
from minedraft.model_files.json_file import one_line, refusal
from minedraft.types import ModelInfo

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path

    from transformers import PreTrainedConfig, PreTrainedModel

    from minedraft.model.architecture import GeometryProbe
    from minedraft.model.directory import ModelDirectory
    from minedraft.model.parallel.group import RankGroup

log = structlog.get_logger(__name__)

FP32_PROOF_BYTES = 1 << 30
"""Largest checkpoint whose path is also proven in fp32 before it is served in another dtype; larger
ones are compared in their own dtype only, which sees gross mistakes but not slight ones."""
CPU_PROOF_BYTES = 64 << 30
"""Largest checkpoint that ranks on GPUs are compared with: its own forward pass then runs on the
CPU, because no device need hold it whole. 24 tokens take about 1.2 s of a core for each GiB of bf16
(SmolLM2-135M: 0.3 s on an AMD EPYC with avx512_bf16)."""
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def load_runner(
    path: str | Path,
    *,
    dtype: str = "float32",
    kernels: str = "auto",
    num_blocks: int,
    block_size: int = 16,
    device: str = "cpu",
    self_test: bool = True,
    ranks: RankGroup | None = None,
    spare: Collection[int] = (),
) -> ModelRunner:
    """Load a causal language model for packed, paged forward passes.

    Args:
        path: A directory with config.json and safetensors or a GGUF file, or a hub id
            (``owner/name``).
        dtype: ``float32``, ``bfloat16`` or ``auto``, of arithmetic, keys and values.
        kernels: Who computes: ``auto``, ``c`` or ``torch`` (`minedraft.model.kernels.select`).
        num_blocks: KV blocks of the pool, at least one.
        block_size: Positions a block holds, at least one.
        device: A torch device. The CPU is proven; CUDA takes the same path, unproven.
        self_test: Compare the paged path with the model's own forward pass before returning
            (about a second for 135M parameters).
        ranks: Keep only this rank's slices; every rank of the group must load the same. Each opens
            the whole checkpoint on the CPU and moves no more than its slices to the device.
        spare: Cores for a thread more each, of wide steps.

    Raises:
        ModelError: The model cannot be served; names the directory and the reason.
        ConfigError: No such kernels.
        KernelsError: The kernels that were asked for cannot run here.
    """
    if dtype != "auto" and dtype not in DTYPES:
        raise ModelError(f"model {path}: dtype={dtype!r} is not one of auto, {', '.join(DTYPES)}")
    if num_blocks < 1 or block_size < 1:
        raise ModelError(f"model {path}: num_blocks={num_blocks}, block_size={block_size}: under 1")
    directory = open_directory(path)
    target = _device(directory, device)
    dtype = settle_dtype(dtype, target)
    if directory.quantises_activations:
        reason = "the checkpoint asks for quantised activations; only weights are"
        log.warning("model.weights_only", path=str(directory.path), reason=reason)
    if self_test and dtype != "float32" and directory.dense_bytes <= FP32_PROOF_BYTES:
        # bf16 rounding hides small mistakes, so the same path is proven in fp32 and let go again.
        _load(directory, "float32", kernels, 1, block_size, target, self_test, ranks)
    return _load(directory, dtype, kernels, num_blocks, block_size, target, self_test, ranks, spare)


def refuse_ranks(path: str | Path, size: int) -> None:
    """Check that N ranks can share a model, before loading anything of it.

    Raises:
        ModelError: they cannot; names the numbers.
    """
    directory = open_directory(path)
    config = _read_config(directory)
    refuse_config(directory.path, config)
    share_heads(directory.path, config, size)


def _load(  # noqa: PLR0917 called twice, above
    directory: ModelDirectory,
    dtype: str,
    maker: str,
    num_blocks: int,
    block_size: int,
    device: torch.device,
    self_test: bool,  # noqa: FBT001 called twice, above
    ranks: RankGroup | None,
    spare: Collection[int] = (),
) -> ModelRunner:
    path = directory.path
    config = _read_config(directory)
    refuse_config(path, config)
    kernels = select(maker, DTYPES[dtype], torch.get_num_threads(), device=device, spare=spare)
    info = _info(directory, config, dtype, num_blocks, block_size)
    heads = None if ranks is None else share_heads(path, config, ranks.size)
    wanted = head = None
    with together(ranks):
        # Ranks cut dense weights.
        model = _read_stored(directory, DTYPES[dtype], keep_packed=ranks is None)
        if ranks is None:
            model.to(device)
        with widened(model, DTYPES[dtype]) if directory.is_quantised else nullcontext():
            found = probe(path, model, config)  # quantised models have weights of two dtypes
        if self_test and (ranks is None or _is_affordable(directory, device)):
            wanted = reference(
                model, DTYPES[dtype], window=_window(found), longest=info.max_model_len
            )
        if ranks is not None and heads is not None:
            head = shard_model(path, model, heads, ranks, is_exact=kernels.is_invariant)
            model.to(device)  # cut by now: a device that ranks share a model for may not hold it
    if ranks is not None:
        found = probe(path, model, config)  # this rank's share of each layer's heads
    layers = [found.layers[i] for i in sorted(found.layers)]
    exact = None
    if self_test:
        exact = kernels
        if dtype != "float32":
            exact = select(maker, torch.float32, torch.get_num_threads(), device=device)
    with together(ranks):
        count = put_on_kernels(
            model,
            Arithmetic(kernels, exact),
            [(found.layers[i], found.options[i]) for i in sorted(found.layers)],
            max_model_len=info.max_model_len,
            agree=_agree_alone if ranks is None else lambda ok: ranks.all_agree(ok=ok),
        )
    del exact
    info = replace(
        info,
        kernels=f"{kernels.name}, {count}",
        num_spare_threads=kernels.num_spare,
        device=device_words(device, num_ranks=1 if ranks is None else ranks.size),
    )
    log.info("model.layers", path=str(path), layers=str(count), kernels=kernels.name)

    def runner(blocks: int) -> ModelRunner:
        pool = KVPool(
            layers,
            num_blocks=blocks,
            block_size=block_size,
            dtype=DTYPES[dtype],
            device=device,
            layout=kernels.key_layout,
        )
        return ModelRunner(model, pool, kernels=kernels, info=info, device=device)

    if wanted is not None:
        with together(ranks):
            error = compare(path, runner(blocks_needed(wanted, block_size)), wanted)
        log.debug("model.self_test", path=str(path), relative_error=error)
    if head is not None:
        head.everywhere = False  # from here on only rank 0 needs logits
    return runner(num_blocks)


def _window(found: GeometryProbe) -> int | None:
    """Return the shortest sliding window of a model's layers."""
    asked = (layer.sliding_window for layer in found.options.values())
    return min((width for width in asked if width is not None), default=None)


def _is_affordable(directory: ModelDirectory, device: torch.device) -> bool:
    """Whether ranks can compare with a forward pass of the whole model on the CPU."""
    num_bytes = directory.dense_bytes
    if device.type == "cpu" or num_bytes <= CPU_PROOF_BYTES:
        return True
    log.warning("model.self_test_skipped", path=str(directory.path), gib=num_bytes >> 30)
    return False


def _device(directory: ModelDirectory, device: str) -> torch.device:
    try:
        target = torch.device(device)
        torch.empty(0, device=target)
    except (RuntimeError, AssertionError) as err:
        raise ModelError(f"model {directory.path}: device={device!r}: {err}") from err
    return target


def _read_config(directory: ModelDirectory) -> PreTrainedConfig:
    """Read config.json with transformers; refuse architectures without a causal model."""
    path = directory.path / "config.json"
    architecture = directory.config.text("model_type")
    if architecture not in CONFIG_MAPPING:
        raise refusal(path, "model_type", architecture, "an architecture that transformers knows")
    try:
        config = AutoConfig.from_pretrained(
            directory.path, trust_remote_code=False, local_files_only=True
        )
    except Exception as err:
        raise ModelError(f"{path}: {one_line(err)}") from err
    if type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING:
        raise refusal(path, "model_type", architecture, "a causal language model")
    text_config = config.get_text_config(decoder=True)
    if not isinstance(getattr(text_config, "vocab_size", None), int):
        found = directory.config.values.get("text_config")
        raise refusal(path, "text_config", found, f"settings of a language model {architecture!r}")
    return cast("PreTrainedConfig", text_config)


def _read_stored(
    directory: ModelDirectory, dtype: torch.dtype, *, keep_packed: bool
) -> PreTrainedModel:
    """Read a model with its weights as the checkpoint has them."""
    if directory.is_quantised:
        return _read_model(directory, dtype, keep_packed=keep_packed)
    narrow = stored_dtype(directory.path, dtype)
    model = _read_model(directory, narrow)
    if narrow == dtype or restore_buffers(model, dtype):
        return model
    log.warning("model.widened", path=str(directory.path), reason="it has buffers of its own")
    del model
    return _read_model(directory, dtype)


def _agree_alone(ok: bool) -> bool:  # noqa: FBT001 as ranks agree
    return ok


def _read_model(
    directory: ModelDirectory, dtype: torch.dtype, *, keep_packed: bool = False
) -> PreTrainedModel:
    try:
        with _quiet():
            if directory.is_quantised:
                model, report = read_quantised_model(directory, dtype, packed=keep_packed)
            else:
                model, report = AutoModelForCausalLM.from_pretrained(
                    directory.path,
                    dtype=dtype,
                    attn_implementation=ATTENTION_NAME,
                    use_safetensors=True,
                    trust_remote_code=False,
                    local_files_only=True,
                    output_loading_info=True,
                )
    except ModelError:
        raise
    except Exception as err:
        if "ignore_mismatched_sizes" in str(err):  # which it says to set, and names no tensor
            err = ValueError("sizes do not fit one another (mismatched_keys)")
        raise ModelError(
            f"model {directory.path}: config.json and weights: {one_line(err)}"
        ) from err
    # transformers fills what is missing with random numbers and says so in a log line only.
    for kind in ("missing_keys", "mismatched_keys", "error_msgs"):
        if report.get(kind):
            names = ", ".join(str(key) for key in sorted(report[kind], key=str)[:3])
            raise ModelError(f"model {directory.path}: weights: {kind}: {names}")
    return cast("PreTrainedModel", model.eval())


def _info(
    directory: ModelDirectory,
    config: PreTrainedConfig,
    dtype: str,
    num_blocks: int,
    block_size: int,
) -> ModelInfo:
    from minedraft.fingerprint import weights_fingerprint

    return ModelInfo(
        name=directory.name,
        vocab_size=int(config.vocab_size),
        max_model_len=max_model_len(directory.path, config),
        tokenizer_fingerprint=directory.tokens.fingerprint,
        dtype=dtype,
        eos_token_ids=directory.tokens.eos_token_ids,
        block_size=block_size,
        num_blocks=num_blocks,
        weights_fingerprint=weights_fingerprint(directory.path),
        quantisation=directory.quantisation_words,
    )


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence progress bars and load reports of transformers; the loader raises errors itself."""
    bars, level = (
        transformers_logging.is_progress_bar_enabled(),
        transformers_logging.get_verbosity(),
    )
    transformers_logging.disable_progress_bar()
    transformers_logging.set_verbosity_error()
    try:
        yield
    finally:
        transformers_logging.set_verbosity(level)
        if bars:
            transformers_logging.enable_progress_bar()
