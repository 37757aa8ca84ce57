"""Versions, and NCCL as far as one process can try it."""

from __future__ import annotations

import importlib
import importlib.metadata
import platform
import statistics
import time
from typing import TYPE_CHECKING

import numpy as np
import torch

from gpu_checks.check import CheckFailed, Figures, Setting, SkipCheck, require
from minedraft.errors import WorkerUnavailableError
from minedraft.link import nccl_library
from minedraft.link.nccl_log import transport_log
from minedraft.link.nccl_wire import VERIFIER, Wire

if TYPE_CHECKING:
    from collections.abc import Callable

PACKAGES = ("torch", "transformers", "grpcio", "nccl4py", "cuda-core", "cuda-bindings")


def versions(setting: Setting) -> Figures:
    """What is installed, and that it imports."""
    for module in ("grpc", "transformers", "minedraft.model.loader", "minedraft.link.form"):
        importlib.import_module(module)
    found: Figures = {"python": platform.python_version(), "gpus": setting.num_gpus}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = "missing"
    found["cuda"] = torch.version.cuda
    for index in range(setting.num_gpus):
        one = torch.cuda.get_device_properties(index)
        found[f"gpu{index}"] = f"{one.name}, {one.total_memory / 2**30:.0f} GiB"
    return found


def nccl_loads(_setting: Setting) -> Figures:
    """One libnccl, torch's, through nccl4py."""
    library = nccl_library.load("cuda")
    nccl = importlib.import_module("nccl.core")
    return {
        "nccl": library.version,
        "torch's": ".".join(map(str, torch.cuda.nccl.version()[:3])),
        "path": nccl.get_version().libnccl.path,
        "unique_id_bytes": len(library.unique_id()),
    }


def stage_round_trip(_setting: Setting) -> Figures:
    """Pinned memory to the device and back, polled, on the stage's own stream."""
    stage = nccl_library.load("cuda").stage(2000)
    times_us = []
    for step in range(1, 200):
        words = np.full(2000, step, dtype=np.int32)
        started = time.perf_counter()
        stage.load(words)
        stage.mark()
        _until(stage.is_past)
        stage.unload()
        stage.mark()
        _until(stage.is_past)
        times_us.append(1e6 * (time.perf_counter() - started))
        require((stage.words() == words).all(), f"step {step}: other words came back")
        require((stage.packet.cpu().numpy() == words).all(), f"step {step}: not on the device")
    stage.clear()
    stage.unload()
    stage.mark()
    _until(stage.is_past)
    require(not stage.words().any(), "clear, or the way back, left something")
    return {"p50_us": round(statistics.median(times_us), 1)}


def nccl_alone(_setting: Setting) -> Figures:
    """A communicator of one rank sends to itself, non-blocking, and is aborted."""
    library = nccl_library.load("cuda:0")
    nccl = importlib.import_module("nccl.core")
    torch.cuda.set_device(0)
    with transport_log() as log:
        started = time.perf_counter()
        comm = nccl.Communicator.init(
            1, 0, nccl.get_unique_id(), nccl.NCCLConfig(blocking=False, min_ctas=1, max_ctas=1)
        )
        ready = nccl_library.Nccl4pyCommunicator(nccl, comm)
        _until(ready.is_ready)
        init_ms = 1e3 * (time.perf_counter() - started)
        out, into = library.stage(500), library.stage(500)
        times_us = []
        for step in range(100):
            words = np.full(500, step, dtype=np.int32)
            started = time.perf_counter()
            out.load(words)
            nccl.group_start()
            ready.send(out, 0)
            comm.recv(into.packet, 0, stream=out.stream_handle)
            nccl.group_end()
            _until(ready.is_ready)
            out.mark()
            _until(out.is_past)
            times_us.append(1e6 * (time.perf_counter() - started))
        require(into.packet.cpu().eq(99).all(), "another packet arrived")
        via = log.transports()
    started = time.perf_counter()
    ready.abort()
    return {
        "init_ms": round(init_ms, 1),
        "p50_us": round(statistics.median(times_us), 1),
        "abort_ms": round(1e3 * (time.perf_counter() - started), 1),
        "via": via or "-",
    }


def nccl_missing_peer(_setting: Setting) -> Figures:
    """A communicator whose peer never comes is given up in time and aborted in bounded time."""
    library = nccl_library.load("cuda:0")
    wire = Wire(library, VERIFIER, num_words=100, is_wanted=lambda: True, op_timeout_s=2.0)
    started = time.perf_counter()
    try:
        wire.connect(library.unique_id(), 2.0)
    except WorkerUnavailableError as err:
        gave_up_s = time.perf_counter() - started
        told = str(err)
    else:
        raise CheckFailed("connected to nobody")
    require(gave_up_s < 5, f"gave up after {gave_up_s:.1f} s instead of 2")
    started = time.perf_counter()
    wire.abort()
    abort_s = time.perf_counter() - started
    require(abort_s < 5, f"abort took {abort_s:.1f} s")
    if "did nothing" not in told:
        raise SkipCheck(f"NCCL refused before the timeout: {told}")
    return {"gave_up_s": round(gave_up_s, 2), "abort_s": round(abort_s, 2)}


def _until(is_done: Callable[[], bool]) -> None:
    until = time.monotonic() + 20
    while not is_done():
        require(time.monotonic() < until, "20 s passed")
