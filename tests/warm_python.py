"""Python processes without seconds of imports: forks of one that has imported what workers need.

A process so started is a child of the test, as if it had been executed: same pid for `kill` and
`waitpid`, same parent for PR_SET_PDEATHSIG, its own environment, descriptors, session and exit
code. What differs: its modules were imported before, and its command line in /proc is another one;
its name there (`comm`) is the module's. Tests of a start as such execute the interpreter.
"""

from __future__ import annotations

import ctypes
import importlib
import inspect
import json
import os
import runpy
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Self

import pytest

ROOT = Path(__file__).parents[1]
TEXTS = ("minedraft.services.coordinator.text.child",)
SERVICES = (
    "minedraft.cli.main",
    "minedraft.link.gloo",
    "minedraft.model.parallel.group",
    "minedraft.model.parallel.leader",
    "minedraft.services.coordinator.app",
    "minedraft.services.drafter.app",
    "minedraft.services.verifier.app",
    "minedraft.services.verifier.rank_worker",
    "transformers.models.llama.modeling_llama",
)
_PR_SET_NAME, _PR_SET_CHILD_SUBREAPER = 15, 36
_MAX_ORDER_BYTES = 1 << 17
_MAX_FDS = 16
_TOLD_FD, _HIGH_FD = 499, 500
"""Received descriptors are moved here first: their numbers may be those that others shall get."""


class WarmPython:
    """The process that has imported modules. `with` starts and ends it.

    Args:
        preloaded: The modules.
    """

    def __init__(self, preloaded: tuple[str, ...]) -> None:
        self._preloaded = preloaded
        # One at a time, and in no event loop: blockbuster watches those of the tests.
        self._thread = ThreadPoolExecutor(1)

    def __enter__(self) -> Self:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            fd = theirs.fileno()
            command = [sys.executable, "-m", "tests.warm_python", str(fd), *self._preloaded]
            self._process = subprocess.Popen(
                command,
                cwd=ROOT,
                env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
                stdin=subprocess.DEVNULL,
                pass_fds=(fd,),
                start_new_session=True,
            )
        assert self._thread.submit(self._socket.recv, 64).result() == b"warm"
        return self

    def __exit__(self, *exc: object) -> None:
        self._socket.close()  # at which it ends
        self._process.wait()
        self._thread.shutdown()

    def start(self, order: dict, fds: dict[int, int]) -> int:
        """Start a process; return its pid.

        Args:
            order: Module, arguments, environment, directory, whether it gets a session of its own.
            fds: Its descriptors by number -> ours.
        """
        return self._thread.submit(self._start, order, fds).result()

    def _start(self, order: dict, fds: dict[int, int]) -> int:
        order = {**order, "cwd": os.fspath(order["cwd"] or Path.cwd())}
        message = json.dumps({**order, "parent": os.getpid(), "fds": list(fds)}).encode()
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)  # a process whose parent ends becomes our child
        try:
            socket.send_fds(self._socket, [message], list(fds.values()))
            return int(self._socket.recv(64))
        finally:
            _prctl(_PR_SET_CHILD_SUBREAPER, 0)

    @contextmanager
    def instead_of_cold(self, *modules: str):
        """A caller of `python -m MODULE` gets a warm process meanwhile; none: any module."""
        warm = self

        class Popen(subprocess.Popen):
            def _execute_child(self, *args):
                call = _EXECUTE_CHILD.bind(self, *args).arguments
                command = [word for word in call["args"] if word != "-P"]
                is_module = command[:2] == [sys.executable, "-m"]
                if not is_module or (modules and command[2] not in modules):
                    super()._execute_child(*args)
                    return
                env = call["env"]
                order = {
                    "module": command[2],
                    "arguments": command[3:],
                    "env": dict(os.environ if env is None else env),
                    "cwd": call["cwd"],
                    "new_session": call["start_new_session"],
                }
                ends = call["p2cread"], call["c2pwrite"], call["errwrite"]
                fds = {number: end if end != -1 else number for number, end in enumerate(ends)}
                try:
                    self.pid = warm.start(order, fds | {fd: fd for fd in call["pass_fds"]})
                    self._child_created = True
                finally:
                    self._close_pipe_fds(*(call[name] for name in _PIPES))

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(subprocess, "Popen", Popen)
            yield


_EXECUTE_CHILD = inspect.signature(subprocess.Popen._execute_child)
_PIPES = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")


def _prctl(option: int, value: int | bytes) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")


def serve(orders: socket.socket) -> dict:
    """Fork for every order; return it in the process that carries it out."""
    asked, told = os.pipe()
    while True:
        message, fds, _, _ = socket.recv_fds(orders, _MAX_ORDER_BYTES, _MAX_FDS)
        if not message:
            sys.exit()
        order = json.loads(message)
        between = os.fork()
        if not between:
            if os.fork():
                os._exit(0)  # at which the other one becomes a child of who ordered it
            while os.getppid() != order["parent"]:
                time.sleep(0.0001)
            _take_place(order, fds, told)
            return order
        os.waitpid(between, 0)
        orders.send(os.read(asked, 64))
        for fd in fds:
            os.close(fd)


def _take_place(order: dict, fds: list[int], told: int) -> None:
    """Become what an executed process would be; tell our pid when all of it can be seen."""
    os.dup2(told, _TOLD_FD)
    moved = []
    for number, fd in zip(order["fds"], fds, strict=True):
        high = _HIGH_FD + number
        os.dup2(fd, high)
        moved.append((high, number))
    os.closerange(3, _TOLD_FD)
    for high, number in moved:
        os.dup2(high, number, inheritable=True)
        os.close(high)
    if order["new_session"]:
        os.setsid()
    os.chdir(order["cwd"])
    os.environ.clear()
    os.environ.update(order["env"])
    name = order["module"].rpartition(".")[2]
    _prctl(_PR_SET_NAME, name.encode())
    os.write(_TOLD_FD, str(os.getpid()).encode())
    os.close(_TOLD_FD)
    sys.argv = [name, *order["arguments"]]
    # The old ones believe in descriptors of another kind.
    sys.stdin = sys.__stdin__ = open(0, closefd=False)  # noqa: SIM115
    sys.stdout = sys.__stdout__ = open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = sys.__stderr__ = open(  # noqa: SIM115
        2, "w", buffering=1, errors="backslashreplace", closefd=False
    )


def main() -> None:
    """Import, then fork until who started this is gone."""
    for module in sys.argv[2:]:
        importlib.import_module(module)
    num_threads = len(list(Path("/proc/self/task").iterdir()))
    assert num_threads == 1, "a fork has none of the others"
    orders = socket.socket(fileno=int(sys.argv[1]))
    orders.send(b"warm")
    order = serve(orders)
    orders.detach()  # closed with all others
    sys.modules.pop(order["module"], None)  # it is executed, not imported
    runpy.run_module(order["module"], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
