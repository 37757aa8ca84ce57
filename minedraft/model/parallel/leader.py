"""Rank 0 sends each step's rows; the other ranks run the same forward pass.

Rank 0 alone sees logits, samples and decides; the others need no decision, because the next step's
rows carry what was committed. Refuses to go on after a failure: ranks that are out of step by one
exchange would compute nonsense.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

from minedraft.errors import WorkerUnavailableError
from minedraft.model.parallel import wire

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from torch import Tensor

    from minedraft.model.batch import RowInput
    from minedraft.model.parallel.group import RankGroup
    from minedraft.model.runner import ModelRunner


class Leader:
    """The part of rank 0. Runs on the device thread.

    Args:
        group: The ranks.
        on_failure: Told why once, on the device thread, when the ranks cannot go on.
    """

    def __init__(self, group: RankGroup, on_failure: Callable[[str], None]) -> None:
        self._group = group
        self._on_failure = on_failure
        self._failure: str | None = None
        self._frame = torch.zeros(wire.FRAME_WORDS, dtype=torch.int32)

    @contextmanager
    def lead(self, rows: Sequence[RowInput]) -> Iterator[None]:
        """Send the rows to the other ranks; the caller runs its forward pass in the context.

        Args:
            rows: Checked: a row refused by one rank would leave the others waiting for it.

        Raises:
            WorkerUnavailableError: a rank is gone, now or since an earlier step.
        """
        if self._failure is not None:
            raise WorkerUnavailableError(self._failure)
        try:
            self._tell(wire.encode(rows))
            yield
        except BaseException as err:
            # Whatever it was, the others are somewhere else in this step.
            self._failure = str(err) or type(err).__name__
            self._on_failure(self._failure)
            raise

    def stop(self) -> None:
        """Send the order to stop, and close the group."""
        if self._failure is None:
            self._failure = "the ranks were told to stop"
            self._tell(wire.encode(()))
        self._group.close()

    def _tell(self, words: Tensor) -> None:
        head = words[: wire.FRAME_WORDS]
        self._frame[: len(head)] = head
        self._group.broadcast(self._frame)
        if len(words) > wire.FRAME_WORDS:
            self._group.broadcast(words[wire.FRAME_WORDS :].contiguous())


def follow(group: RankGroup, runner: ModelRunner) -> None:
    """Run forward passes as rank 0 sends them, until it sends the order to stop.

    Raises:
        WorkerUnavailableError: rank 0 or another rank is gone.
        ProtocolError: the ranks are out of step.
    """
    frame = torch.zeros(wire.FRAME_WORDS, dtype=torch.int32)
    while rows := _hear(group, frame):
        runner.feed(rows)
    group.close()


def _hear(group: RankGroup, frame: Tensor) -> list[RowInput]:
    group.broadcast(frame)
    length = wire.num_words(frame)
    if length <= wire.FRAME_WORDS:
        return wire.decode(frame[:length])
    rest = torch.zeros(length - wire.FRAME_WORDS, dtype=torch.int32)
    group.broadcast(rest)
    return wire.decode(torch.cat([frame, rest]))
