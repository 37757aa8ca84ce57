"""Owners of live requests: decides who may abort one or continue it in another call. Pure."""

from __future__ import annotations

import hmac
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from minedraft.security.caller import Caller


@dataclass(frozen=True, slots=True)
class Owner:
    """The caller that began a request, with the secret of that call."""

    caller: Caller
    resume_token: bytes = field(default=b"", repr=False)
    """Empty: none."""

    def may_supersede(self, caller: Caller, resume_token: bytes) -> bool:
        """Whether a call may take the request over.

        The identity alone does not do: callers that share one, all those on an open port say,
        may pick the same id.
        """
        return self._is_same(caller) and self._is_shown((resume_token,))

    def may_abort(self, caller: Caller, resume_tokens: Iterable[bytes]) -> bool:
        """Whether a call may abort the request; where callers prove nothing, the secret decides."""
        if not self._is_same(caller):
            return False
        return caller.is_proven or not self.resume_token or self._is_shown(resume_tokens)

    def _is_same(self, caller: Caller) -> bool:
        return hmac.compare_digest(self.caller.identity, caller.identity)

    def _is_shown(self, resume_tokens: Iterable[bytes]) -> bool:
        if not self.resume_token:
            return False
        return any(hmac.compare_digest(self.resume_token, each) for each in resume_tokens)
