"""Ways to use devices: who has the target, who drafts, how many batches rotate. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from minedraft.capacity.roofline import HalfMeasured, RooflineCosts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from minedraft.capacity.device import Device, Group
    from minedraft.capacity.question import Drafter, Question
    from minedraft.services.coordinator.core.shapes import StepCosts

KS: Final = (1, 2, 3, 4, 5, 6, 8, 10, 12)
"""Draft tokens per step that are tried."""
TPS: Final = (1, 2, 4, 8, 16)
MAX_DRAFTERS: Final = 4
"""Drafters of one target that are tried."""


@dataclass(frozen=True, slots=True)
class Layout:
    """One way; all groups are alike, and each is a service of its own."""

    device: Device
    """Of the target."""
    tp: int
    drafter: Drafter | None = None
    """None: plain decoding."""
    draft_device: Device | None = None
    """None: the drafter computes on the target's device, or there is none."""
    num_drafters: int = 0
    """Devices that draft, of one group."""
    num_batches: int = 1
    k: int = 0
    num_groups: int = 1

    @property
    def is_shared(self) -> bool:
        """Whether the drafter has no device of its own."""
        return self.drafter is not None and self.draft_device is None

    @property
    def num_devices(self) -> int:
        """Devices that are in use."""
        return self.num_groups * (self.tp + self.num_drafters)

    @property
    def structure(self) -> tuple[object, ...]:
        """All but k: two layouts of one structure are no choice to a buyer."""
        name = self.drafter.name if self.drafter else ""
        draft = self.draft_device.name if self.draft_device else ""
        return (
            self.device.name, self.tp, name, draft, self.num_drafters, self.num_batches,
        )  # fmt: skip

    def costs(self, question: Question) -> StepCosts:
        """Costs of its steps: measured ones where they were given."""
        drafter = self.drafter
        if drafter is not None and drafter.costs is not None:
            return drafter.costs
        if drafter is None and question.target_costs is not None:
            return question.target_costs
        priced = RooflineCosts(
            question.target,
            self.device,
            self.tp,
            drafter.shape if drafter else None,
            self.draft_device,
            question.launch,
        )
        if question.target_costs is None:
            return priced
        return HalfMeasured(question.target_costs, priced)


def layouts(question: Question) -> Iterator[Layout]:
    """All ways to use some or all of the devices."""
    for group in question.groups:
        for tp in TPS:
            if question.tp not in {None, tp} or tp > group.count:
                continue
            if question.target.num_kv_heads % tp == 0:
                yield from _of_target(question, group, tp)


def _of_target(question: Question, group: Group, tp: int) -> Iterator[Layout]:
    num_groups = group.count // tp
    yield Layout(group.device, tp, num_groups=num_groups)
    for drafter in question.drafters:
        if drafter.costs is None:  # costs were measured on two devices
            for k in KS:
                yield Layout(group.device, tp, drafter, k=k, num_groups=num_groups)
        for other in question.groups:
            for num_drafters in range(1, MAX_DRAFTERS + 1):
                num = _num_groups(group, other, tp, num_drafters)
                for num_batches in range(1, num_drafters + 2) if num else ():
                    for k in KS:
                        yield Layout(
                            group.device, tp, drafter, other.device, num_drafters, num_batches, k,
                            num,
                        )  # fmt: skip


def _num_groups(group: Group, other: Group, tp: int, num_drafters: int) -> int:
    """Groups that fit; 0: not one does."""
    if group.device == other.device:
        return group.count // (tp + num_drafters)
    return min(group.count // tp, other.count // num_drafters)
