"""What holds for every test: one thread, no blocked event loop, no leaked log context."""

from __future__ import annotations

import inspect
import logging
import os
import sys
from pathlib import Path

# Before torch or numpy is imported anywhere: the tests share two cores with everything else.
for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[_name] = "1"
# transformers and tokenizers: no network, no fork warnings.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import pytest
import structlog
import torch
from blockbuster import BlockingError, blockbuster_ctx
from hypothesis import HealthCheck, settings

from minedraft.model.kernels.c import compile as kernel_objects
from tests.slow_first import slow_first
from tests.warm_python import TEXTS, WarmPython

torch.set_num_threads(1)

# The machine is shared: no deadline a test. CI draws the same examples every time.
settings.register_profile(
    "minedraft",
    deadline=None,
    database=None,
    derandomize=bool(os.environ.get("CI")),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("minedraft")

ROOT = Path(__file__).parents[1]
_LOCKS = ("threading.Lock.acquire", "threading.Lock.acquire_lock")


def pytest_addoption(parser):
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="rewrite golden files and generated documents; the diff is the review",
    )


def pytest_configure(config):
    """Test the C sources as they are, not an object of yesterday's."""
    if objects := os.environ.get("SANITIZED_OBJECTS"):  # tests/sanitized.py has built them
        kernel_objects.OBJECTS = Path(objects)
        os.environ.pop("LD_PRELOAD", None)  # of this process alone: a compiler takes minutes so
    elif not hasattr(config, "workerinput"):  # the first process of xdist does it for all
        kernel_objects.build()


def pytest_collection_modifyitems(config, items):
    if hasattr(config, "workerinput"):
        tests = [(str(item.path), bool(item.get_closest_marker("slow")), item) for item in items]
        items[:] = slow_first(tests, config.workerinput["workercount"])
    if torch.cuda.is_available():
        return
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="no CUDA device"))


@pytest.fixture(scope="session")
def warm_text_child():
    with WarmPython(TEXTS) as warm:
        yield warm


@pytest.fixture
def warm_texts(warm_text_child):
    """Coordinators in this process have warm processes tokenize; tests of the pool do not."""
    with warm_text_child.instead_of_cold(*TEXTS):
        yield


@pytest.fixture
def update_golden(request) -> bool:
    """Whether this run rewrites golden files."""
    return request.config.getoption("--update-golden")


_configure_structlog = structlog.configure


def _uncached(**settings):
    _configure_structlog(**{**settings, "cache_logger_on_first_use": False})


_contained: list[str] = []
"""Blocked loops that a service took for a failure of its peer and went on."""


def _no_traceback(_logger, _name, event):
    """Rendering one reads source files, which an event loop of a test must not."""
    err = sys.exc_info()[1] if event.get("exc_info") is True else event.get("exc_info")
    if isinstance(err, BlockingError):
        _contained.append(repr(err))
    if event.get("exc_info"):
        event["exc_info"] = repr(event["exc_info"])
    return event


@pytest.fixture(autouse=True)
def plain_logs(monkeypatch):
    """Every test starts with plain logs to its own stdout and without bound context.

    Commands configure structlog and logging for their process. Loggers must not keep that: their
    stream is closed when the test ends.
    """
    monkeypatch.setattr(structlog, "configure", _uncached)
    _uncached(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            _no_traceback,
            structlog.processors.KeyValueRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(0),
        context_class=dict,
        logger_factory=structlog.PrintLoggerFactory(),
    )
    structlog.contextvars.clear_contextvars()
    level = logging.root.level
    yield
    for handler in logging.root.handlers[:]:
        if type(handler).__module__ == "minedraft.log":
            logging.root.removeHandler(handler)
    logging.root.setLevel(level)
    structlog.contextvars.clear_contextvars()


@pytest.fixture(autouse=True)
def no_blocking_calls(request):
    """Fail an async test when code of ours blocks the event loop on sleep, file or socket.

    Only calls made from minedraft count: a test may read files as it likes. A service may read
    its files while it starts (`run` in an app.py): nobody is served yet. Locks are exempt: ours
    guard a few lines each, and blockbuster cannot tell those from long ones.
    """
    if not inspect.iscoroutinefunction(getattr(request, "function", None)):
        yield
        return
    with blockbuster_ctx("minedraft") as guard:
        for name in _LOCKS:
            guard.functions[name].deactivate()
        for function in guard.functions.values():
            function.can_block_in("/app.py", "run")
        _contained.clear()
        yield
        assert not _contained
