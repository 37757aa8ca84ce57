"""Collectives between the ranks of one model: sums, gathered slices, words of rank 0.

Refuses to be torch's default group, to listen beyond the given address, and to send objects: only
tensors of sizes both ends know. Every wait is bounded except one: a rank may wait for rank 0's next
step as long as it takes, because the end of rank 0 ends its wait too.

A group in which an exchange failed or timed out is never used again: gloo cannot resume it, and a
rank that missed one exchange would take the next for it.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import AllgatherOptions, FileStore, PrefixStore

from minedraft.errors import ModelError, WorkerUnavailableError
from minedraft.security import gloo_port

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

LEADER: Final = 0
_AS_LONG_AS_IT_TAKES = timedelta(days=3650)
"""Not "for ever": to torch a timeout of 0, or beyond 64 bits of nanoseconds, is something else."""


@dataclass(frozen=True, slots=True)
class RankSpec:
    """One rank's place and how it meets the others."""

    rank: int
    """0 is the leader."""
    size: int
    """Ranks, at least two."""
    store: str
    """A file of a directory that only this user may enter: torch's FileStore, so that meeting needs
    no port. It may be deleted once every rank has formed the group."""
    device: str = "cpu"
    bind_host: str = "127.0.0.1"
    """Address that gloo listens on."""
    timeout_s: float = 30.0
    """Longest time of one exchange."""
    patience_s: float = 600.0
    """Longest wait for one another until all have loaded."""


class RankGroup:
    """N ranks that run the same forward pass on their own slices. Not thread-safe.

    gloo carries rank 0's words always, and the tensors of CPU models. CUDA tensors go over NCCL
    (a ProcessGroupNCCL beside it; written for it, unproven: no machine with two GPUs was at hand).

    Args:
        spec: The place of this rank.

    Raises:
        WorkerUnavailableError: not all ranks came in time.
    """

    def __init__(self, spec: RankSpec) -> None:
        self.rank = spec.rank
        self.size = spec.size
        self._timeout_s = spec.timeout_s
        self._patience_s = spec.patience_s
        op_timeout = timedelta(seconds=spec.timeout_s)
        self._sum = dist.AllreduceOptions()
        self._sum.timeout = op_timeout
        self._least = dist.AllreduceOptions()
        self._least.reduceOp = dist.ReduceOp(dist.ReduceOp.MIN)
        self._least.timeout = timedelta(seconds=spec.patience_s)
        self._to_leader = dist.GatherOptions()
        self._to_leader.rootRank = LEADER
        self._to_leader.timeout = op_timeout
        self._to_all = AllgatherOptions()
        self._to_all.timeout = op_timeout
        self._say = dist.BroadcastOptions()
        self._say.rootRank = LEADER
        self._say.timeout = op_timeout if spec.rank == LEADER else _AS_LONG_AS_IT_TAKES
        self._words: Any = None
        self._tensors: Any = None
        gloo_port.check_spare_files()
        self._attempt(lambda: self._form(spec), spec.patience_s)
        told = Path(spec.store).read_bytes()
        # All pass it together: afterwards no rank needs the store or the port.
        self.all_agree(ok=True)
        gloo_port.shut(told)

    def all_reduce(self, x: Tensor) -> None:
        """Replace `x` by the sum over all ranks, in place. Shapes must agree."""
        self._attempt(lambda: self._tensors.allreduce([x], self._sum).wait())

    def all_gather(self, x: Tensor) -> list[Tensor]:
        """Return every rank's `x`, in rank order. Shapes must agree."""
        parts = [torch.empty_like(x) for _ in range(self.size)]
        self._attempt(lambda: self._tensors.allgather([parts], [x], self._to_all).wait())
        return parts

    def gather(self, x: Tensor) -> list[Tensor] | None:
        """Return every rank's `x` on rank 0; None on the others."""
        is_leader = self.rank == LEADER
        parts = [torch.empty_like(x) for _ in range(self.size)] if is_leader else []
        outputs = [parts] if is_leader else []
        self._attempt(lambda: self._tensors.gather(outputs, [x], self._to_leader).wait())
        return parts if is_leader else None

    def broadcast(self, words: Tensor) -> None:
        """Overwrite `words` (CPU, same shape everywhere) with those of rank 0.

        The others wait for rank 0 as long as it takes.
        """
        self._attempt(lambda: self._words.broadcast([words], self._say).wait())

    def all_agree(self, *, ok: bool) -> bool:
        """Return whether every rank agrees. Waits for a rank that is still loading."""
        verdict = torch.tensor([int(ok)], dtype=torch.int32)
        self._attempt(
            lambda: self._words.allreduce([verdict], self._least).wait(), self._patience_s
        )
        return bool(verdict.item())

    def close(self) -> None:
        """Close the connections and end the group's threads; the other ranks notice."""
        self._words = self._tensors = None

    def _form(self, spec: RankSpec) -> None:
        store = FileStore(spec.store, spec.size)
        store.set_timeout(timedelta(seconds=spec.patience_s))
        gloo: Any = dist.ProcessGroupGloo
        settings = gloo._Options()  # noqa: SLF001 torch has no other way
        settings._devices = [gloo.create_device(hostname=spec.bind_host)]  # noqa: SLF001
        settings._threads = 1  # noqa: SLF001 one exchange at a time
        settings._timeout = timedelta(seconds=spec.patience_s)  # noqa: SLF001
        self._words = gloo(PrefixStore("gloo", store), spec.rank, spec.size, settings)
        self._tensors = self._words
        if torch.device(spec.device).type == "cuda":
            torch.cuda.set_device(spec.device)
            nccl: Any = dist.ProcessGroupNCCL
            options = nccl.Options()
            options._timeout = timedelta(seconds=spec.timeout_s)  # noqa: SLF001
            self._tensors = nccl(PrefixStore("nccl", store), spec.rank, spec.size, options)
            self._tensors.allreduce([torch.zeros(1, device=spec.device)], self._sum).wait()

    def _attempt(self, exchange: Callable[[], object], limit_s: float | None = None) -> None:
        try:
            exchange()
        except RuntimeError as err:
            reason = _reason(err, self._timeout_s if limit_s is None else limit_s)
            raise WorkerUnavailableError(f"rank {self.rank} of {self.size}: {reason}") from err


def _reason(err: RuntimeError, limit_s: float) -> str:
    """Shorten gloo's error, which names files of torch's build machine."""
    text = str(err)
    if "imed out" in text or "imeout" in text:
        return f"another rank did nothing for {limit_s:g} s"
    if "Connection closed" in text or "reset by peer" in text or "Broken pipe" in text:
        return "another rank closed the connection"
    return text.partition("\n")[0]


@contextmanager
def together(group: RankGroup | None) -> Iterator[None]:
    """What all do before the next exchange: it ends with the last, and one's failure is all's.

    Args:
        group: The ranks; None: there is only this one.

    Raises:
        ModelError: it went well here, but not on another rank.
        Exception: what was raised inside.
    """
    if group is None:
        yield
        return
    failure: Exception | None = None
    try:
        yield
    except WorkerUnavailableError:
        raise  # no rank is left to agree with
    except Exception as err:  # noqa: BLE001 raised again below
        failure = err
    agreed = group.all_agree(ok=failure is None)
    if failure is not None:
        raise failure
    if not agreed:
        raise ModelError("another rank refuses the model")
