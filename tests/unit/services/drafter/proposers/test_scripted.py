from __future__ import annotations

from minedraft.services.drafter.proposers.scripted import ScriptedProposer
from minedraft.types import DebugOptions
from tests.draft_world import Drafter, context, drafting, opened, row

REFERENCE = (10, 11, 12)


def test_it_proposes_the_reference_without_a_model_step():
    drafter = Drafter("scripted")
    reference = (10, 11, 12, 13, 14)
    drafter.step([row()], opens=[opened(debug=DebugOptions(reference))])
    assert drafter.drafts() == [10, 11, 12, 13]
    drafter.step([row(base_len=6, new=(10, 11, 12))])
    assert drafter.drafts() == [13, 14]
    assert drafter.runner.calls == []
    assert drafter.engine.rows.num_blocks_used == 0


def test_it_is_never_behind_so_that_a_swap_to_it_ends():
    drafter = Drafter("scripted")
    result = drafter.step([row(k=0)], opens=[opened(debug=DebugOptions((10,)))])
    assert result.num_behind == 0


def test_it_goes_as_far_as_the_reference():
    cases = [((), 2, [10, 11]), ((10, 11), 4, [12]), (REFERENCE, 4, []), ((), 0, [])]
    batch = [drafting(output, k=k, debug=DebugOptions(REFERENCE)) for output, k, _ in cases]
    ScriptedProposer(context()).propose(batch)
    assert [item.drafts for item in batch] == [want for _, _, want in cases]


def test_a_token_that_was_not_drawn_is_a_proposal_of_its_own():
    drafter = Drafter("scripted", q_width=5)
    drafter.step([row()], opens=[opened(debug=DebugOptions((9, 8, 7, 6)))])
    sent = drafter.packets[0].rows[0]
    assert sent.token_ids == (9, 8, 7, 6)
    assert sent.q == tuple(((token,), (1.0,)) for token in sent.token_ids)
