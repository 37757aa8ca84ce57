"""What a forward pass takes by the roofline of its device, and steps made of them. Pure.

A pass reads the weights and the keys and values of its context, and does two operations per weight
and token; a GPU does both at once, so the longer one counts, a core one after the other. Beside
that, kernels must be launched. A roofline is a bound that a good program comes near: shares of it
are stated below, each with what it rests on. Measured costs are better; `--costs` takes them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from minedraft.capacity.device import all_reduce_s
from minedraft.capacity.model_shape import BF16

if TYPE_CHECKING:
    from collections.abc import Sequence

    from minedraft.capacity.device import Device
    from minedraft.capacity.model_shape import ModelShape
    from minedraft.services.coordinator.core.shapes import StepCosts

BANDWIDTH_SHARE: Final = 0.9
"""Of a GPU's bandwidth that is reached. Llama-3.1-8B on an H100 decodes a token in 5.1 ms with CUDA
graphs (published by Spheron, 2026): with the kernels' gaps below that is nine tenths."""
FLOPS_SHARE: Final = 0.6
"""Of a GPU's dense bf16 rate that is reached. An assumption of ours."""
LAUNCHES_PER_LAYER: Final = 60
LAUNCH_S: Final = 6e-6
"""An eager layer of transformers: some 60 kernels, 6 us of the host's time each. The same published
8B decodes a token in 8.4 ms without graphs in a leaner engine; by these figures it is 11.5."""
KERNELS_PER_LAYER: Final = 10
KERNEL_GAP_S: Final = 1.4e-6
"""With graphs some ten fused kernels are left, and the gap between one and the next."""
EAGER, GRAPHS = "eager", "graphs"
LAUNCHES: Final = (EAGER, GRAPHS)


def pass_s(
    shape: ModelShape,
    device: Device,
    *,
    num_tokens: float,
    context: float,
    num_logits: float | None = None,
    tp: int = 1,
    launch: str = EAGER,
) -> float:
    """Time of one forward pass.

    Args:
        shape: The model.
        device: What computes.
        num_tokens: Tokens that it feeds.
        context: Tokens that are attended to, of all rows together.
        num_logits: Positions whose logits are wanted; None: all.
        tp: Devices that share the model.
        launch: How kernels are launched, on a GPU.

    Returns:
        Seconds.
    """
    num_logits = num_tokens if num_logits is None else num_logits
    bandwidth, flops = device.bandwidth, device.flops
    if device.is_gpu:
        bandwidth, flops = bandwidth * BANDWIDTH_SHARE, flops * FLOPS_SHARE
    read = shape.read_bytes / tp / bandwidth
    multiply = 2 * (num_tokens * shape.layer_params + num_logits * shape.head_params) / tp / flops
    keys = context * shape.kv_bytes / tp / bandwidth
    sums = 2 * shape.num_layers * all_reduce_s(device, tp, num_tokens * shape.hidden * BF16)
    if not device.is_gpu:
        return read + multiply + keys + sums
    busy = max(read, multiply) + keys + sums
    if launch == GRAPHS:
        return busy + shape.num_layers * KERNELS_PER_LAYER * KERNEL_GAP_S
    return max(busy, shape.num_layers * LAUNCHES_PER_LAYER * LAUNCH_S)


@dataclass(frozen=True, slots=True)
class RooflineCosts:
    """Steps of a target and a drafter: see `shapes.StepCosts`."""

    target: ModelShape
    target_device: Device
    tp: int = 1
    drafter: ModelShape | None = None
    draft_device: Device | None = None
    """None: the target's, or there is no drafter."""
    launch: str = EAGER

    def verify_ns(
        self, num_tokens: float, num_rows: float, context: float, *, overlapped: float
    ) -> float:
        """See `StepCosts`."""
        del num_rows
        seconds = pass_s(
            self.target, self.target_device, num_tokens=num_tokens, context=context, tp=self.tp,
            launch=self.launch,
        )  # fmt: skip
        return seconds * 1e9 * _factor(self.target_device, overlapped)

    def draft_ns(
        self,
        rows_per_depth: Sequence[float],
        num_catch_up_tokens: float,
        context: float,
        *,
        overlapped: float,
    ) -> float:
        """See `StepCosts`."""
        if self.drafter is None:
            return 0.0
        device = self.draft_device or self.target_device
        rows = rows_per_depth[0] if rows_per_depth else 0
        seconds = pass_s(
            self.drafter, device, num_tokens=max(num_catch_up_tokens, rows), context=context,
            num_logits=rows, launch=self.launch,
        )  # fmt: skip
        last, each = -1.0, 0.0
        for count in rows_per_depth[1:]:
            if count != last:
                last = count
                share = count / rows if rows else 0.0
                each = pass_s(
                    self.drafter, device, num_tokens=count, context=context * share,
                    launch=self.launch,
                )  # fmt: skip
            seconds += each
        return seconds * 1e9 * _factor(device, overlapped)


@dataclass(frozen=True, slots=True)
class HalfMeasured:
    """A measured target with a drafter by the roofline: see `shapes.StepCosts`."""

    measured: StepCosts
    roofline: RooflineCosts

    def verify_ns(
        self, num_tokens: int, num_rows: int, context: int, *, overlapped: float
    ) -> float | None:
        """See `StepCosts`."""
        return self.measured.verify_ns(num_tokens, num_rows, context, overlapped=overlapped)

    def draft_ns(
        self,
        rows_per_depth: Sequence[int],
        num_catch_up_tokens: int,
        context: int,
        *,
        overlapped: float,
    ) -> float:
        """See `StepCosts`."""
        return self.roofline.draft_ns(
            rows_per_depth, num_catch_up_tokens, context, overlapped=overlapped
        )


def _factor(device: Device, overlapped: float) -> float:
    return 1 + overlapped * (device.slowdown - 1)
