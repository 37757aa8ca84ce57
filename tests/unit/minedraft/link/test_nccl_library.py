"""What is missing is said; nccl4py's side runs against a compiled stand-in for libnccl."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from minedraft.errors import ConfigError, ProtocolError, WorkerUnavailableError
from minedraft.link import nccl_library
from minedraft.link.nccl_library import Nccl4py, Nccl4pyCommunicator

HERE = Path(__file__).parent


def installed(monkeypatch, *, of_torch=(2, 30, 7), found=(2, 30, 7), path="/x/libnccl.so.2"):
    """Pretend that torch sees a device and that nccl4py is there."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 3)
    monkeypatch.setattr(torch.cuda.nccl, "version", lambda: of_torch)
    version = SimpleNamespace(release=found) if found else None
    library = SimpleNamespace(version=version, path=path) if found else None
    module = SimpleNamespace(get_version=lambda: SimpleNamespace(libnccl=library))
    monkeypatch.setitem(sys.modules, "nccl", SimpleNamespace(core=module))
    monkeypatch.setitem(sys.modules, "nccl.core", module)
    return module


def test_a_cpu_has_no_nccl():
    with pytest.raises(ConfigError, match="device='cpu', want a CUDA device"):
        nccl_library.load("cpu")


def test_torch_without_a_cuda_device_is_named(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ConfigError, match=r"device='cuda:1', but torch .* sees no CUDA device"):
        nccl_library.load("cuda:1")


def test_a_missing_nccl4py_is_named(monkeypatch):
    installed(monkeypatch)
    monkeypatch.setitem(sys.modules, "nccl.core", None)  # importing it fails
    with pytest.raises(ConfigError, match="nccl4py is not installed"):
        nccl_library.load("cuda")


def test_a_missing_libnccl_is_named(monkeypatch):
    installed(monkeypatch, found=None)
    with pytest.raises(ConfigError, match=r"libnccl\.so\.2 cannot be loaded"):
        nccl_library.load("cuda")


def test_two_libraries_in_one_process_are_refused_naming_both(monkeypatch):
    installed(monkeypatch, of_torch=(2, 28, 9), found=(2, 30, 4))
    with pytest.raises(ConfigError, match=r"torch uses NCCL 2\.28\.9, but /x/\S+ is NCCL 2\.30\.4"):
        nccl_library.load("cuda")


def test_an_old_nccl_is_refused(monkeypatch):
    installed(monkeypatch, of_torch=(2, 21, 5), found=(2, 21, 5))
    with pytest.raises(ConfigError, match=r"NCCL 2\.21\.5, want 2\.23"):
        nccl_library.load("cuda")


@pytest.mark.parametrize(("asked", "device"), [("cuda", "cuda:3"), ("cuda:1", "cuda:1")])
def test_it_is_for_the_device_asked_for(monkeypatch, asked, device):
    installed(monkeypatch, of_torch=(2, 30, 7, "suffix"))
    library = nccl_library.load(asked)
    assert (library.device, library.version) == (device, "2.30.7")


def test_a_unique_id_of_another_length_is_refused():
    with pytest.raises(ProtocolError, match="127 bytes, want 128"):
        Nccl4py(SimpleNamespace(), torch.device("cuda", 0), "2.30.7").join(b"x" * 127, 0)


def test_what_nccl4py_raises_becomes_ours():
    def fail():
        raise LookupError("ncclUnhandledCudaError")

    library = Nccl4py(SimpleNamespace(get_unique_id=fail), torch.device("cuda", 0), "2.30.7")
    with pytest.raises(WorkerUnavailableError, match="LookupError: ncclUnhandledCudaError"):
        library.unique_id()


@pytest.mark.parametrize(("state", "is_ready"), [(0, True), (7, False)])
def test_success_and_in_progress_are_no_errors(state, is_ready):
    comm = SimpleNamespace(get_async_error=lambda: state)
    assert Nccl4pyCommunicator(SimpleNamespace(), comm).is_ready() is is_ready


def test_an_asynchronous_error_is_told_in_nccls_words():
    nccl = SimpleNamespace(get_error_string=lambda state: f"error {state}")
    comm = SimpleNamespace(get_async_error=lambda: 5, get_last_error=lambda: "Duplicate GPU")
    with pytest.raises(WorkerUnavailableError, match="nccl: error 5: Duplicate GPU"):
        Nccl4pyCommunicator(nccl, comm).is_ready()


def test_packets_go_out_on_the_stream_of_their_stage():
    calls = []
    comm = SimpleNamespace(
        send=lambda *args, **kwargs: calls.append(("send", args, kwargs)),
        recv=lambda *args, **kwargs: calls.append(("recv", args, kwargs)),
    )
    stage = SimpleNamespace(packet="tensor", stream_handle=77)
    both = Nccl4pyCommunicator(SimpleNamespace(), comm)
    both.send(stage, 0)
    both.recv(stage, 1)
    assert calls == [
        ("send", ("tensor", 0), {"stream": 77}),
        ("recv", ("tensor", 1), {"stream": 77}),
    ]


@pytest.mark.timeout(60)
def test_nccl4py_drives_the_c_interface_as_a_link_needs_it(tmp_path):
    """Non-blocking, one block, the id whole, in progress accepted, aborted and never destroyed."""
    pytest.importorskip("nccl.core", reason="nccl4py comes with the extras cu12 and cu13")
    if shutil.which("gcc") is None:
        pytest.skip("no C compiler")
    source = HERE / "fake_libnccl.c"
    library = tmp_path / "libnccl.so.2"
    subprocess.run(
        ["gcc", "-shared", "-fPIC", "-Wl,-soname,libnccl.so.2", "-o", library, source], check=True
    )
    done = subprocess.run(
        [sys.executable, "-c", _DRIVE, str(library)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "version 2.30.7",
        "init ranks=2 rank=1 ids=1 id0=7 blocking=0 ctas=1..1",
        "ready False",
        "ready False",
        "ready True",
        "error nccl: fake error 6: last words",
        "abort",
    ]


_DRIVE = """
import ctypes, sys
ctypes.CDLL(sys.argv[1], mode=ctypes.RTLD_GLOBAL)  # as torch would have loaded it
import nccl.core as nccl
import torch
from minedraft.errors import WorkerUnavailableError
from minedraft.link.nccl_library import Nccl4py
torch.cuda.set_device = lambda _device: None
library = Nccl4py(nccl, torch.device("cuda", 0), "?")
print("version", nccl.get_version().libnccl.version, flush=True)
comm = library.join(library.unique_id(), 1)
for _ in range(3):
    print("ready", comm.is_ready(), flush=True)
try:
    comm.is_ready()
except WorkerUnavailableError as err:
    print("error", err, flush=True)
comm.abort()
"""
