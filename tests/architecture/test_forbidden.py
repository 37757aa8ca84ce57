"""What no source file may do: unpickle, run remote code, print, read the environment at large."""

from __future__ import annotations

import ast
import re

import pytest

from tests.architecture.sources import parsed, source_files

UNPICKLERS = {"cloudpickle", "dill", "joblib", "marshal", "pickle", "shelve"}
FORBIDDEN_ATTRIBUTES = {
    ("torch", "load"): "unpickles",
    ("dist", "TCPStore"): "listens on every interface and lets any peer write",
    ("distributed", "rpc"): "runs what a peer sends",
    ("yaml", "load"): "builds any object; use safe_load",
    ("yaml", "unsafe_load"): "builds any object; use safe_load",
    ("os", "system"): "goes through a shell",
    ("os", "popen"): "goes through a shell",
    ("os", "_exit"): "skips every cleanup",
    ("asyncio", "gather"): "leaves siblings running; use a TaskGroup",
}
PICKLES_INSIDE = re.compile(r"(\w+_object|\w+_object_list|(recv|send)_pyobj)")
"""Collectives and sockets that unpickle before anybody can look."""
RUNS_TEXT = {"eval", "exec", "compile", "__import__"}
MAY_READ_ENVIRONMENT = {
    "config.py",
    "cache.py",
    "nccl_log.py",
    "kernel_caches.py",
    "grpc_fork.py",
    "grpc_log.py",
    "compile.py",
    "cpu.py",
    "library.py",
}
"""Settings come in through config.py; the model cache has its customary variables; the logs of
NCCL, the logs and forks of gRPC and the limits of oneDNN can be asked for in no other way; $CC
names the C compiler everywhere; a variable forces the C kernels of another CPU, for tests.
Anybody may pass the environment on to a child process: `{**os.environ, ...}`."""

MAY_SKIP_CLEANUP = {"exit.py"}
"""minedraft/exit.py: when the main thread has ended and only a model's load goes on."""


def complaints(tree: ast.Module, file_name: str) -> list[str]:
    passed_on = {
        id(value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Dict)
        for key, value in zip(node.keys, node.values, strict=True)
        if key is None
    }
    return [
        f"line {getattr(node, 'lineno', 0)}: {what}"
        for node in ast.walk(tree)
        if id(node) not in passed_on
        for what in _complaints_about(node, file_name)
    ]


def _complaints_about(node: ast.AST, file_name: str):
    match node:
        case ast.Import() | ast.ImportFrom():
            yield from _complaints_about_import(node)
        case ast.Assert():
            yield "asserts: gone under python -O; raise"
        case ast.keyword(arg="trust_remote_code" | "allow_pickle" | "shell") if not (
            isinstance(node.value, ast.Constant) and node.value.value is False
        ):
            yield f"{node.arg} is not the literal False"
        case ast.Call(func=ast.Name(id="print")):
            yield "prints"
        case ast.Call(func=ast.Name(id=name)) if name in RUNS_TEXT:
            yield f"{name} runs text"
        case ast.Attribute(value=ast.Name(id=base) | ast.Attribute(attr=base), attr=attr):
            may = (base, attr) == ("os", "_exit") and file_name in MAY_SKIP_CLEANUP
            if (base, attr) in FORBIDDEN_ATTRIBUTES and not may:
                yield f"{base}.{attr} {FORBIDDEN_ATTRIBUTES[base, attr]}"
            if PICKLES_INSIDE.fullmatch(attr):
                yield f"{attr} unpickles"
            reads = (base, attr) in {("os", "environ"), ("os", "getenv")}
            if reads and file_name not in MAY_READ_ENVIRONMENT:
                yield "reads the environment"


def _complaints_about_import(node: ast.Import | ast.ImportFrom):
    names = [alias.name for alias in node.names]
    modules = names if isinstance(node, ast.Import) else [node.module or ""]
    yield from (f"imports {name}" for name in modules if name.split(".")[0] in UNPICKLERS)
    if isinstance(node, ast.ImportFrom):
        module = modules[0].split(".")[-1]
        yield from (
            f"imports {module}.{name}, which {FORBIDDEN_ATTRIBUTES[module, name]}"
            for name in names
            if (module, name) in FORBIDDEN_ATTRIBUTES
        )


@pytest.mark.parametrize("path", source_files(), ids=str)
def test_a_source_file_does_nothing_forbidden(path):
    assert not complaints(parsed(path), path.name)


@pytest.mark.parametrize(
    "code",
    [
        "import pickle",
        "from marshal import loads",
        "torch.load(path)",
        "load(path, trust_remote_code=True)",
        "load(path, trust_remote_code=flag)",
        "numpy.load(path, allow_pickle=True)",
        "print(1)",
        "os._exit(1)",
        "os.environ['HOME']",
        "asyncio.gather(*tasks)",
        "import cloudpickle",
        "import dill.source",
        "group.broadcast_object_list(x)",
        "dist.all_gather_object(x, y)",
        "torch.distributed.scatter_object_list(x)",
        "socket.recv_pyobj()",
        "torch.distributed.rpc.init_rpc('x')",
        "from torch.distributed import rpc",
        "from torch import load",
        "dist.TCPStore('127.0.0.1', 0)",
        "yaml.load(text)",
        "run(command, shell=True)",
        "run(command, shell=flag)",
        "os.system('ls')",
        "eval(text)",
        "exec(text)",
        "assert caller.is_admin",
    ],
)
def test_the_search_finds(code):
    assert complaints(ast.parse(code), "module.py")


def test_the_environment_may_be_passed_on():
    assert not complaints(ast.parse("run(env={**os.environ, 'TMPDIR': path})"), "module.py")


PLAINTEXT = {
    "insecure_channel": {"minedraft/security/channel.py"},
    "add_insecure_port": {"minedraft/transport/server.py", "minedraft/transport/health.py"},
}
"""Where a connection or a port may be opened without TLS: where somebody decided that it may."""


@pytest.mark.parametrize("name", PLAINTEXT)
def test_plaintext_is_opened_in_one_place(name):
    found = {
        str(path)
        for path in source_files()
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Attribute) and node.attr == name
    }
    assert found == PLAINTEXT[name]


OWN_TASKS = {
    "minedraft/cli/serve.py": "the command and its stop signal: both awaited",
    "minedraft/transport/slow_reader.py": "ends a call whose handler it must outlive",
    "minedraft/transport/token_link.py": "reads a stream while the handler waits for it or silence",
    "minedraft/transport/worker_client.py": "writes plans; says itself what went wrong",
    "minedraft/worker/lifetime.py": "a load and its stop signal: both awaited",
    "services/verifier/rank_process.py": "listens to a rank; whoever asks for its end awaits it",
    "services/verifier/ranks.py": "ends of ranks, and a load beside them: all awaited",
}
"""Where a task is made outside a `TaskGroup`, and who hears of its failure."""


def test_a_task_belongs_to_a_group_or_to_an_owner_that_hears_of_its_failure():
    found = {
        str(path)
        for path in source_files()
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Attribute)
        and node.attr in {"create_task", "ensure_future"}
        and isinstance(node.value, ast.Name)
        and node.value.id in {"asyncio", "loop"}
    }
    assert found == OWN_TASKS.keys()
