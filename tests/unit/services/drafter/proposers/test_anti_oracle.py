from __future__ import annotations

from minedraft.services.drafter.proposers.anti_oracle import AntiOracleProposer
from tests.draft_world import Drafter, context, drafting, opened, row
from tests.fake_runner import VOCAB, continuation


def test_it_never_proposes_what_the_model_says():
    drafter = Drafter("anti_oracle")
    drafter.step([row()], opens=[opened()])
    history = [1, 2, 3]
    for token in drafter.drafts():
        assert token == (continuation(history, 1)[0] + 1) % VOCAB
        history.append(token)


def test_it_proposes_a_token_of_the_vocabulary():
    proposer = AntiOracleProposer(context())
    assert proposer.impose(drafting(), 7).token == 8
    assert proposer.impose(drafting(), VOCAB - 1).token == 0


def test_a_token_that_was_not_drawn_is_a_proposal_of_its_own():
    drafter = Drafter("anti_oracle", q_width=5)
    drafter.step([row()], opens=[opened()])
    sent = drafter.packets[0].rows[0]
    assert len(sent.token_ids) == 4
    assert sent.q == tuple(((token,), (1.0,)) for token in sent.token_ids)
