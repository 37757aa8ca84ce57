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
MAY_READ_ENVIRONMENT = {"config.py", "cache.py"}
"""Settings come in through config.py; the model cache has its customary variables. Anybody may
pass the environment on to a child process: `{**os.environ, ...}`."""


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
    if isinstance(node, ast.Import):
        yield from (f"imports {a.name}" for a in node.names if a.name.split(".")[0] in UNPICKLERS)
    if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in UNPICKLERS:
        yield f"imports {node.module}"
    if isinstance(node, ast.ImportFrom):
        names = {(node.module or "").split(".")[-1]: [alias.name for alias in node.names]}
        yield from (
            f"imports {module}.{name}, which {FORBIDDEN_ATTRIBUTES[module, name]}"
            for module, imported in names.items()
            for name in imported
            if (module, name) in FORBIDDEN_ATTRIBUTES
        )
    if isinstance(node, ast.Assert):
        yield "asserts: gone under python -O; raise"
    if isinstance(node, ast.keyword) and node.arg == "shell":
        is_false = isinstance(node.value, ast.Constant) and node.value.value is False
        yield from () if is_false else ("goes through a shell",)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in RUNS_TEXT:
        yield f"{node.func.id} runs text"
    if isinstance(node, ast.Attribute) and PICKLES_INSIDE.fullmatch(node.attr):
        yield f"{node.attr} unpickles"
    if isinstance(node, ast.keyword) and node.arg in {"trust_remote_code", "allow_pickle"}:
        is_false = isinstance(node.value, ast.Constant) and node.value.value is False
        yield from () if is_false else (f"{node.arg} is not the literal False",)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print":
        yield "prints"
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        name = (node.value.id, node.attr)
        if name in FORBIDDEN_ATTRIBUTES:
            yield f"{'.'.join(name)} {FORBIDDEN_ATTRIBUTES[name]}"
        if name in {("os", "environ"), ("os", "getenv")} and file_name not in MAY_READ_ENVIRONMENT:
            yield "reads the environment"


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
