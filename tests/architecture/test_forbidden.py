"""What no source file may do: unpickle, run remote code, print, read the environment at large."""

from __future__ import annotations

import ast

import pytest

from tests.architecture.sources import parsed, source_files

UNPICKLERS = {"cloudpickle", "dill", "joblib", "marshal", "pickle", "shelve"}
FORBIDDEN_ATTRIBUTES = {
    ("torch", "load"): "unpickles",
    ("dist", "broadcast_object_list"): "unpickles",
    ("dist", "all_gather_object"): "unpickles",
    ("dist", "gather_object"): "unpickles",
    ("dist", "recv_object_list"): "unpickles",
    ("dist", "send_object_list"): "pickles",
    ("os", "_exit"): "skips every cleanup",
    ("asyncio", "gather"): "leaves siblings running; use a TaskGroup",
}
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
    ],
)
def test_the_search_finds(code):
    assert complaints(ast.parse(code), "module.py")


def test_the_environment_may_be_passed_on():
    assert not complaints(ast.parse("run(env={**os.environ, 'TMPDIR': path})"), "module.py")
