"""`python -m minedraft.services.verifier.rank_worker ORDER`: a rank beside rank 0.

One thread that loads its slices and runs what rank 0 says. Serves nobody, decides nothing, and
never outlives the process that started it: the kernel kills it with that one, even when stopped.
"""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import sys

import structlog

from minedraft import log as logs
from minedraft.errors import ConfigError, MineDraftError
from minedraft.exit import end_quickly
from minedraft.services.verifier.rank_process import UP, RankOrder

log = structlog.get_logger(__name__)

_PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> int:
    """Run one rank.

    Returns:
        0 when rank 0 said stop, else 1.
    """
    order = RankOrder.from_json(arguments[0])
    die_with_parent(order.parent_pid)
    # A unit is stopped through rank 0, which lets steps end and says stop.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    logs.configure("verifier", level=logging.WARNING, json=not sys.stderr.isatty())
    structlog.contextvars.bind_contextvars(rank=order.rank)
    if order.cores is not None:
        # Before torch starts a thread, so that all of them stay there.
        os.sched_setaffinity(0, order.cores)
    end_quickly()
    try:
        run(order)
    except (ConfigError, MineDraftError) as err:
        log.error("rank.ended", reason=str(err))  # noqa: TRY400 rank 0 tells it, without a trace
        say(str(err).replace("\n", " "))
        return 1
    return 0


def run(order: RankOrder) -> None:
    """Meet the others, load, follow rank 0 until it says stop."""
    import torch

    from minedraft.model.loader import load_runner
    from minedraft.model.parallel.group import RankGroup, RankSpec
    from minedraft.model.parallel.leader import follow

    torch.set_num_threads(order.threads)
    say(UP)
    group = RankGroup(
        RankSpec(
            rank=order.rank,
            size=order.size,
            store=order.store,
            device=order.device,
            timeout_s=order.timeout_s,
        )
    )
    runner = load_runner(
        order.model,
        dtype=order.dtype,
        kernels=order.kernels,
        num_blocks=order.num_blocks,
        block_size=order.block_size,
        device=order.device,
        ranks=group,
    )
    follow(group, runner)


def say(line: str) -> None:
    """Tell rank 0 one line."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def die_with_parent(parent_pid: int) -> None:
    """Let the kernel kill this process when the thread that started it ends.

    Raises:
        ConfigError: the kernel refuses.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0):
        raise ConfigError(f"prctl(PR_SET_PDEATHSIG): {os.strerror(ctypes.get_errno())}")
    if os.getppid() != parent_pid:  # it ended before we asked
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
