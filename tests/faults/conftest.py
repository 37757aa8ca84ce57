"""One tiny model, and what an undisturbed run makes of the requests of the matrix."""

from __future__ import annotations

import asyncio
import logging

import pytest
import structlog

from tests.faults.hooks import Hooks
from tests.faults.world import a_world
from tests.tiny_models import make_tiny_llama


@pytest.fixture(scope="session")
def target_dir(tmp_path_factory):
    return make_tiny_llama(tmp_path_factory.mktemp("target"))


@pytest.fixture(scope="session")
def undisturbed(target_dir):
    """Plain decoding, one request at a time of the same prompts and options."""

    async def run():
        with pytest.MonkeyPatch.context() as patch:
            async with a_world(target_dir, "local", (1, 1, 0), Hooks(patch)) as world:
                return [c.token_ids for c in await world.run_load()]

    return asyncio.run(run())


@pytest.fixture(autouse=True)
def quiet_services(warm_texts):
    """Faults make services warn; that is not what a failing cell needs to show."""
    config = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    yield
    structlog.configure(**config)
