"""What a check is, and what it is told. No torch: the driver imports this."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

Figures: TypeAlias = dict[str, Any]


class SkipCheck(Exception):  # noqa: N818 it is no error
    """Cannot be checked here; the message says why."""


class CheckFailed(Exception):  # noqa: N818 the name of a verdict
    """Something is not as it must be."""


def require(is_so: object, otherwise: str) -> None:
    """Fail the check with these words unless something is so."""
    if not is_so:
        raise CheckFailed(otherwise)


@dataclass(frozen=True, slots=True)
class Setting:
    """How to run."""

    device: str
    """"cuda" or "cpu"."""
    num_gpus: int
    is_short: bool
    """Small sizes, few repeats: to try the script itself."""


@dataclass(frozen=True, slots=True)
class Check:
    """One check: `gpu_checks.<module>.<name>(setting)` returns figures, raises or skips."""

    name: str
    module: str
    timeout_s: float
    num_gpus: int = 0
    """GPUs without which it is skipped."""


CHECKS = (
    Check("versions", "libraries", 60),
    Check("nccl_loads", "libraries", 60, num_gpus=1),
    Check("stage_round_trip", "libraries", 60, num_gpus=1),
    Check("nccl_alone", "libraries", 60, num_gpus=1),
    Check("nccl_missing_peer", "libraries", 60, num_gpus=1),
    Check("tiny_model_exact", "models", 90),
    Check("acceptance_exact", "models", 60),
    Check("step_times_1_5b", "models", 120),
    Check("link_local", "links", 60),
    Check("link_grpc", "links", 60),
    Check("link_gloo", "links", 60),
    Check("link_nccl_one_gpu", "links", 60, num_gpus=1),
    Check("link_nccl", "links", 90, num_gpus=2),
    Check("link_nccl_again_and_again", "links", 120, num_gpus=2),
    Check("services_accepting", "services", 120),
    Check("services_rejecting", "services", 120),
    Check("services_auto_link", "services", 90, num_gpus=1),
    Check("step_times_7b", "models", 180),
)
