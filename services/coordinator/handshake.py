"""Whether a worker fits: compared before it is used. Says what differs. Pure.

Protocol version, vocabulary, sizes. What a drafter can do beyond that is how its drafts may travel:
`transport_choice` compares it with the verifier's. The NCCL versions of two workers are compared by
themselves, before a communicator is begun (minedraft/link/nccl.py); the coordinator has no NCCL.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from minedraft.errors import IncompatibleWorkerError
from minedraft.plans import PROTOCOL_VERSION

if TYPE_CHECKING:
    from minedraft.plans import WorkerInfo
    from minedraft.types import ModelInfo


def check_verifier(
    info: WorkerInfo,
    *,
    tokenizer_fingerprint: str,
    known: ModelInfo | None,
    known_acceptance: str = "",
    num_token_ids: int = 0,
) -> None:
    """Check a verifier that wants to join.

    Args:
        info: What it says of itself.
        tokenizer_fingerprint: Of the coordinator's own tokenizer; "": not compared.
        known: The model of the verifier before it, if there was one: requests that wait for its
            return were begun with that model.
        known_acceptance: Its acceptance rule.
        num_token_ids: Of the coordinator's own tokenizer; 0: not compared.

    Raises:
        IncompatibleWorkerError: another protocol, vocabulary or model.
    """
    _check_protocol(info)
    _check_sizes("verifier", info.model, num_token_ids)
    theirs = info.model.tokenizer_fingerprint
    if tokenizer_fingerprint and theirs != tokenizer_fingerprint:
        raise IncompatibleWorkerError(
            f"verifier {info.model.name}: tokenizer fingerprint {theirs[:12]}, "
            f"the coordinator's tokenizer has {tokenizer_fingerprint[:12]}"
        )
    if known is not None and _essence(known) != _essence(info.model):
        raise IncompatibleWorkerError(
            f"verifier came back with another model: {info.model.name} {_essence(info.model)}, "
            f"it was {known.name} {_essence(known)}"
        )
    if known_acceptance and known_acceptance != info.acceptance:
        raise IncompatibleWorkerError(
            f"verifier came back with acceptance {info.acceptance!r}, it was {known_acceptance!r}"
        )


def check_drafter(info: WorkerInfo, target: ModelInfo | None, num_token_ids: int = 0) -> None:
    """Check a drafter that wants to join.

    Raises:
        IncompatibleWorkerError: another protocol or vocabulary, or nothing to compare it with.
    """
    _check_protocol(info)
    if target is None:
        raise IncompatibleWorkerError("no verifier yet to compare this drafter with")
    check_draft_model(info.model, target, num_token_ids)


def check_draft_model(draft: ModelInfo, target: ModelInfo, num_token_ids: int = 0) -> None:
    """Check a draft model against the target.

    Padded vocabularies of different sizes are fine: what counts is that ids mean the same. So is a
    shorter context: requests beyond it go on without drafts.

    Raises:
        IncompatibleWorkerError: another vocabulary, or not all of it.
    """
    _check_sizes("drafter", draft, num_token_ids)
    mine, theirs = target.tokenizer_fingerprint, draft.tokenizer_fingerprint
    if mine != theirs:
        raise IncompatibleWorkerError(
            f"drafter {draft.name} has another vocabulary than the target {target.name}: "
            f"tokenizer fingerprints {theirs[:12]} and {mine[:12]}, "
            f"vocabulary sizes {draft.vocab_size} and {target.vocab_size}"
        )


def _check_protocol(info: WorkerInfo) -> None:
    if info.identity.protocol_version != PROTOCOL_VERSION:
        raise IncompatibleWorkerError(
            f"{info.model.name}: protocol version {info.identity.protocol_version}, "
            f"this coordinator speaks {PROTOCOL_VERSION}"
        )


def _check_sizes(role: str, model: ModelInfo, num_token_ids: int) -> None:
    if model.vocab_size < max(num_token_ids, 1):
        raise IncompatibleWorkerError(
            f"{role} {model.name}: vocab_size={model.vocab_size}, "
            f"the tokenizer has {num_token_ids or 'more'} ids"
        )
    if model.max_model_len < 1:
        raise IncompatibleWorkerError(
            f"{role} {model.name}: max_model_len={model.max_model_len}, want at least 1"
        )


def _essence(model: ModelInfo) -> tuple[object, ...]:
    """What the output of a request depends on."""
    return (
        model.weights_fingerprint[:12],
        model.tokenizer_fingerprint[:12],
        model.vocab_size,
        model.max_model_len,
        model.dtype,
        model.eos_token_ids,
    )
