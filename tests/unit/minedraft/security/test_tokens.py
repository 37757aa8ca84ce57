from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minedraft.errors import ConfigError
from minedraft.security.roles import Role
from minedraft.security.tokens import TokenTable, authorization_of

ADMIN = "admin-token-0123456789"
CLIENT = "client-token-0123456789"
TEXT = f"""
# comment
admin {ADMIN}
client   {CLIENT}   # mine

coordinator sha256:{hashlib.sha256(b"the coordinators secret").hexdigest()}
"""


@pytest.fixture
def table():
    return TokenTable.parse(TEXT, "tokens")


def test_a_known_token_has_its_role(table):
    assert table.caller_of(f"Bearer {ADMIN}").roles == {Role.ADMIN}
    assert table.caller_of(f"bearer  {CLIENT} ").roles == {Role.CLIENT}
    assert table.caller_of("Bearer the coordinators secret").roles == {Role.COORDINATOR}


@pytest.mark.parametrize(
    "sent",
    ["", "Bearer", "Bearer ", ADMIN, f"Basic {ADMIN}", f"Bearer {ADMIN[:-1]}", f"Bearer {ADMIN}x",
     "Bearer sha256:" + hashlib.sha256(b"the coordinators secret").hexdigest(),
     "Bearer " + "x" * 10_000, "Bearer \ud800"],
)  # fmt: skip
def test_any_other_has_none(table, sent):
    assert table.caller_of(sent).roles == frozenset()


@given(st.text(max_size=60))
def test_a_guess_has_none(text):
    assert TokenTable.parse(TEXT, "tokens").caller_of(f"Bearer {text}").roles == frozenset()


def test_a_rotation_lists_the_old_token_beside_the_new_one():
    table = TokenTable.parse(f"client {CLIENT}\nclient {CLIENT}-new\n", "tokens")
    assert (
        table.caller_of(f"Bearer {CLIENT}").roles
        == table.caller_of(f"Bearer {CLIENT}-new").roles
        == {Role.CLIENT}
    )
    assert table.own([Role.CLIENT]) == CLIENT


def test_ones_own_token_is_that_of_the_first_role_that_has_one(table):
    assert table.own([Role.DRAFTER, Role.CLIENT, Role.ADMIN]) == CLIENT
    assert table.own([Role.COORDINATOR]) == ""  # a hash proves nothing
    assert table.own([]) == ""
    assert authorization_of(CLIENT) == ("authorization", f"Bearer {CLIENT}")


@pytest.mark.parametrize(
    "line",
    ["operator abcdefghijklmnopqrst", "admin", ADMIN, f"admin {ADMIN} {CLIENT}", "admin short",
     "admin sha256:abcd", "admin sha256:" + "x" * 64, "admin " + "ü" * 20],
)  # fmt: skip
def test_a_bad_line_is_named_by_number_and_never_quoted(line):
    with pytest.raises(ConfigError, match="token_file=tokens line 2") as caught:
        TokenTable.parse(f"client {CLIENT}\n{line}", "tokens")
    for word in line.split()[1:]:
        if len(word) > 5:
            assert word not in str(caught.value)
    assert ADMIN not in str(caught.value)


def test_no_repr_has_a_token(table):
    assert ADMIN not in repr(table)
    assert repr(hashlib.sha256(ADMIN.encode()).digest()) not in repr(table)
