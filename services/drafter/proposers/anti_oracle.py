"""Tests: proposes another token than the model drew, always. Everything is rejected."""

from __future__ import annotations

from typing import TYPE_CHECKING

from minedraft.services.drafter.proposers.model import Imposed, ModelProposer

if TYPE_CHECKING:
    from minedraft.services.drafter.proposer import Drafting


class AntiOracleProposer(ModelProposer):
    """See the module docstring; with the target's weights no draft is ever right."""

    def impose(self, item: Drafting, drawn: int) -> Imposed:  # noqa: ARG002 whatever was drawn
        """See `ModelProposer`."""
        return Imposed((drawn + 1) % self._runner.info.vocab_size)
