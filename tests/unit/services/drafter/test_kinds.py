from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from minedraft.services.drafter import proposers
from minedraft.services.drafter.kinds import KINDS, make_proposer
from minedraft.services.drafter.proposers.scripted import ScriptedProposer
from minedraft.types import DebugOptions
from tests.draft_world import Drafter, context, opened, row
from tests.fake_runner import continuation


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("k", [0, 4])
def test_every_kind_drafts_up_to_k_tokens_of_a_row(kind, k):
    drafter = Drafter(kind)
    debug = DebugOptions(tuple(continuation((1, 2, 3), 8)), 1.0)
    result = drafter.step([row(k=k)], opens=[opened(debug=debug)])
    assert result.num_draft_tokens <= k
    assert (result.num_behind, result.num_broken) == (0, 0)
    assert len(drafter.packets) == (k > 0)


def test_a_kind_is_made_by_its_name():
    assert isinstance(make_proposer("scripted", context()), ScriptedProposer)


def test_every_file_of_proposers_is_in_the_table():
    files = {path.stem for path in Path(proposers.__file__).parent.glob("*.py")} - {"__init__"}
    assert files == {where.split(".")[0] for where in KINDS.values()}


def test_the_names_of_the_kinds_are_known_without_torch():
    code = "import sys, minedraft.services.drafter.config\nsys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
