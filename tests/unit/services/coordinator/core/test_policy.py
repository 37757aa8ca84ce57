from __future__ import annotations

from pathlib import Path

import pytest

from minedraft.errors import InvalidRequestError
from minedraft.services.coordinator.core import policies
from minedraft.services.coordinator.core.core import Core
from minedraft.services.coordinator.core.policies.fixed import Fixed
from minedraft.services.coordinator.core.policy import POLICIES, policy_named
from minedraft.types import Mode


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_every_policy_can_be_made_by_its_name(name):
    assert isinstance(policy_named(name), POLICIES[name])
    assert policy_named(name) is not policy_named(name), "each core has its own"


def test_fixed_is_the_policy_unless_another_is_asked_for():
    assert isinstance(policy_named("fixed"), Fixed)
    Core(Mode(1, 1, 1))


def test_an_unknown_policy_is_refused_with_the_names_that_there_are():
    with pytest.raises(InvalidRequestError, match=r"'fxied', want one of: .*fixed") as err:
        Core(Mode(1, 1, 1), policy="fxied")
    assert err.value.field == "policy"


def test_every_file_of_policies_is_in_the_table():
    files = {path.stem for path in Path(policies.__file__).parent.glob("*.py")} - {"__init__"}
    assert files == {made.__module__.rpartition(".")[2] for made in POLICIES.values()}
