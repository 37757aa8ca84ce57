"""The same figures under the names of vLLM, for boards and clients made for it. Pure.

Only names whose meaning is the same: what vLLM counts and we do not has no alias.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from minedraft.services.coordinator.telemetry.families import Family

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from minedraft.admin import Status

PREFIX: Final = "vllm:"
_ENGINE: Final = ("engine", "0")
_NAMES: Final[dict[str, tuple[str, ...]]] = {
    "requests_running": ("num_requests_running",),
    "requests_waiting": ("num_requests_waiting",),
    "requests_finished": ("request_success",),
    "preemptions": ("num_preemptions",),
    "prompt_tokens": ("prompt_tokens",),
    "prompt_tokens_cached": ("prompt_tokens_cached",),
    "output_tokens": ("generation_tokens",),
    "drafts": ("spec_decode_num_drafts",),
    "draft_tokens": ("spec_decode_num_draft_tokens",),
    "accepted_tokens": ("spec_decode_num_accepted_tokens",),
    "accepted_tokens_per_position": ("spec_decode_num_accepted_tokens_per_pos",),
    "queue_seconds": ("request_queue_time_seconds",),
    "time_to_first_token_seconds": ("time_to_first_token_seconds",),
    "inter_token_seconds": ("inter_token_latency_seconds",),
    "time_per_output_token_seconds": ("request_time_per_output_token_seconds",),
    "prefill_seconds": ("request_prefill_time_seconds",),
    "decode_seconds": ("request_decode_time_seconds",),
    "inference_seconds": ("request_inference_time_seconds",),
    "request_seconds": ("e2e_request_latency_seconds",),
    "request_prompt_tokens": ("request_prompt_tokens",),
    # Of a request with one sample both are its output tokens; ours are counted per sample.
    "request_output_tokens": ("request_generation_tokens", "request_max_num_generation_tokens"),
    "request_max_tokens": ("request_params_max_tokens",),
}
"""By our name, without prefix."""
_LABELS: Final = {"reason": "finished_reason"}


def aliases(ours: Iterable[Family], status: Status) -> Iterator[Family]:
    """Build the aliases.

    Args:
        ours: All of our families.
        status: Of the coordinator; names the model.

    Yields:
        Families with the labels `model_name` and `engine` before their own.
    """
    model = next((w.model.name for w in status.workers if w.role == "verifier"), "")
    own = (("model_name", model), _ENGINE)
    for family in ours:
        for name in _NAMES.get(family.name, ()):
            samples = tuple(
                (own + tuple((_LABELS.get(label, label), value) for label, value in labels), count)
                for labels, count in family.samples
            )
            if family.histogram is not None:
                samples = ((own, 0.0),)
            yield replace(family, name=name, samples=samples)
    used = status.num_blocks_used / status.num_blocks if status.num_blocks else 0.0
    yield Family("kv_cache_usage_perc", "gauge", "Share of KV blocks in use.", ((own, used),))
    block_size = next((w.model.block_size for w in status.workers if w.role == "verifier"), 0)
    config = (("block_size", str(block_size)), ("num_gpu_blocks", str(status.num_blocks)))
    yield Family("cache_config_info", "gauge", "The KV cache.", (((*config, _ENGINE), 1.0),))
