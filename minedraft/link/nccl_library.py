"""NCCL through nccl4py and torch: the few calls of a link, or why they are unavailable.

Refuses to load torch or NCCL for a device that is not CUDA. Refuses a libnccl of another version
than torch's: two of them in one process is an installation gone wrong (docs/gpu.md).

UNPROVEN: written without a GPU. Its shape is tested against doubles, and nccl4py's side of it
against a compiled stand-in for libnccl; `benchmarks/gpu_check.py` proves the rest.
"""

from __future__ import annotations

import functools
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar, cast

from minedraft.errors import ConfigError, ProtocolError, WorkerUnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from minedraft.link.nccl_wire import Library, Stage
    from minedraft.packets.rows import Words

P = ParamSpec("P")
T = TypeVar("T")

_SUCCESS: Final = 0  # ncclResult_t
_IN_PROGRESS: Final = 7
_UNIQUE_ID_BYTES: Final = 128
_OLDEST: Final = (2, 23)
"""Oldest NCCL with ncclCommInitRankScalable, which nccl4py calls."""


def load(device: str) -> Library:
    """Load NCCL for a device.

    Args:
        device: As torch names it: "cuda" or "cuda:1".

    Raises:
        ConfigError: no link over NCCL can be formed here; says what is missing.
    """
    kind, _, _ = device.partition(":")
    if kind != "cuda":
        raise ConfigError(f"transport nccl: device={device!r}, want a CUDA device")
    try:
        import torch
    except ImportError as err:
        raise ConfigError(f"transport nccl: torch is not installed: {err}") from None
    if not torch.cuda.is_available():
        raise ConfigError(
            f"transport nccl: device={device!r}, but torch {torch.__version__} sees no CUDA device"
        )
    try:
        # After torch: the libnccl that torch has loaded is the one taken.
        nccl: Any = import_module("nccl.core")
    except ImportError as err:
        raise ConfigError(
            f"transport nccl: nccl4py is not installed (extras cu12 and cu13 have it): {err}"
        ) from None
    found = nccl.get_version().libnccl
    if found is None:
        raise ConfigError("transport nccl: libnccl.so.2 cannot be loaded (nvidia-nccl-cu12, -cu13)")
    version = ".".join(str(part) for part in found.version.release[:3])
    cuda: Any = torch.cuda
    of_torch = ".".join(str(part) for part in cuda.nccl.version()[:3])
    if version != of_torch:
        raise ConfigError(
            f"transport nccl: torch uses NCCL {of_torch}, but {found.path} is NCCL {version}: "
            "keep one nvidia-nccl package, the one that torch asks for"
        )
    if found.version.release[:2] < _OLDEST:
        raise ConfigError(f"transport nccl: NCCL {version}, want 2.23 or newer")
    index = torch.device(device).index if ":" in device else torch.cuda.current_device()
    return Nccl4py(nccl, torch.device("cuda", index), version)


def _translated(call: Callable[P, T]) -> Callable[P, T]:
    """Convert errors of nccl4py, the CUDA bindings and torch to one kind."""

    @functools.wraps(call)
    def translated(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return call(*args, **kwargs)
        except (WorkerUnavailableError, ProtocolError):
            raise
        except Exception as err:
            # three libraries, no common base
            raise WorkerUnavailableError(f"nccl: {type(err).__name__}: {err}") from err

    return translated


class Nccl4py:
    """A `Library`.

    Args:
        nccl: The module nccl.core.
        device: With an index.
        version: Of libnccl.
    """

    def __init__(self, nccl: Any, device: torch.device, version: str) -> None:  # noqa: ANN401
        self._nccl = nccl
        self._torch_device = device
        self.device = str(device)
        self.version = version

    @_translated
    def unique_id(self) -> bytes:
        """See `Library`."""
        return bytes(self._nccl.get_unique_id())

    @_translated
    def join(self, unique_id: bytes, rank: int) -> Nccl4pyCommunicator:
        """See `Library`. The thread's current device is this one from here on."""
        import torch

        if len(unique_id) != _UNIQUE_ID_BYTES:
            raise ProtocolError(
                f"nccl: a unique id of {len(unique_id)} bytes, want {_UNIQUE_ID_BYTES}"
            )
        torch.cuda.set_device(self._torch_device)
        # One block of threads: a receive that waits occupies that much of the device, no more.
        config = self._nccl.NCCLConfig(blocking=False, min_ctas=1, max_ctas=1)
        comm = self._nccl.Communicator.init(
            2, rank, self._nccl.UniqueId.from_bytes(unique_id), config
        )
        return Nccl4pyCommunicator(self._nccl, comm)

    @_translated
    def stage(self, num_words: int) -> CudaStage:
        """See `Library`."""
        return CudaStage(self._torch_device, num_words)


class Nccl4pyCommunicator:
    """A `Communicator`."""

    def __init__(self, nccl: Any, comm: Any) -> None:  # noqa: ANN401 a module without stubs
        self._nccl = nccl
        self._comm = comm

    @_translated
    def is_ready(self) -> bool:
        """See `Communicator`."""
        state = int(self._comm.get_async_error())
        if state not in {_SUCCESS, _IN_PROGRESS}:
            what, more = self._nccl.get_error_string(state), self._comm.get_last_error()
            raise WorkerUnavailableError(f"nccl: {what}: {more}")
        return state == _SUCCESS

    @_translated
    def send(self, stage: Stage, peer: int) -> None:
        """See `Communicator`."""
        mine = cast("CudaStage", stage)
        self._comm.send(mine.packet, peer, stream=mine.stream_handle)

    @_translated
    def recv(self, stage: Stage, peer: int) -> None:
        """See `Communicator`."""
        mine = cast("CudaStage", stage)
        self._comm.recv(mine.packet, peer, stream=mine.stream_handle)

    @_translated
    def abort(self) -> None:
        """See `Communicator`."""
        self._comm.abort()


class CudaStage:
    """A `Stage` of torch tensors, on a stream of its own."""

    @_translated
    def __init__(self, device: torch.device, num_words: int) -> None:
        import torch

        torch.cuda.set_device(device)
        self._cuda: Any = torch.cuda
        self._host = torch.zeros(num_words, dtype=torch.int32, pin_memory=True)
        self._stream = self._cuda.Stream(device, priority=-1)  # before the model's kernels
        with self._cuda.stream(self._stream):  # whoever gets this memory next comes after us
            self.packet = torch.zeros(num_words, dtype=torch.int32, device=device)
        self._event = self._cuda.Event()
        self.stream_handle = int(self._stream.cuda_stream)

    @_translated
    def load(self, words: Words) -> None:
        """See `Stage`."""
        self._host.numpy()[:] = words
        with self._cuda.stream(self._stream):
            self.packet.copy_(self._host, non_blocking=True)

    @_translated
    def clear(self) -> None:
        """See `Stage`."""
        with self._cuda.stream(self._stream):
            self.packet.zero_()

    @_translated
    def unload(self) -> None:
        """See `Stage`."""
        with self._cuda.stream(self._stream):
            self._host.copy_(self.packet, non_blocking=True)

    @_translated
    def mark(self) -> None:
        """See `Stage`."""
        self._event.record(self._stream)

    @_translated
    def is_past(self) -> bool:
        """See `Stage`."""
        return bool(self._event.query())

    def words(self) -> Words:
        """See `Stage`."""
        return cast("Words", self._host.numpy().copy())
