"""Checks whether a worker fits before it is used, and says what differs. Pure.

Protocol version, vocabulary, sizes; no number or word is believed out of its range. What a drafter
can do beyond that is how its drafts may travel: `transport_choice` compares it with the verifier's.
The NCCL versions of two workers are compared by
themselves, before a communicator is begun (minedraft/link/nccl.py); the coordinator has no NCCL.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from minedraft.errors import ConfigError, IncompatibleWorkerError
from minedraft.plans import PROTOCOL_VERSION
from minedraft.security.address import check_dial
from minedraft.types import MAX_EOS_IDS, MAX_MODEL_LEN, MAX_VOCAB_SIZE, Acceptance

if TYPE_CHECKING:
    from minedraft.plans import WorkerInfo
    from minedraft.types import ModelInfo

MAX_BLOCK_SIZE: Final = 2**16
MAX_NUM_BLOCKS: Final = 2**28
MAX_SPARE_THREADS: Final = 256
_MAX_NAME_CHARS: Final = 4096
_MAX_WORD_CHARS: Final = 128
_MAX_SHOWN_CHARS: Final = 64
_RULES: Final = tuple(rule.value for rule in Acceptance)


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
    _check_identity(info)
    _check_model("verifier", info.model, num_token_ids)
    _between(f"verifier {info.model.name}: num_blocks", info.model.num_blocks, 1, MAX_NUM_BLOCKS)
    if info.acceptance not in _RULES:
        raise IncompatibleWorkerError(
            f"acceptance={info.acceptance[:_MAX_SHOWN_CHARS]!r}, want one of {', '.join(_RULES)}"
        )
    if info.link_address:
        _check_link_address(info.link_address)
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
    _check_identity(info)
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
    _check_model("drafter", draft, num_token_ids)
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
            f"{info.model.name[:_MAX_SHOWN_CHARS]!r}: "
            f"protocol version {info.identity.protocol_version}, "
            f"this coordinator speaks {PROTOCOL_VERSION}"
        )


def _check_link_address(address: str) -> None:
    try:
        check_dial("link_address", address[:_MAX_NAME_CHARS])
    except ConfigError as err:
        raise IncompatibleWorkerError(str(err)) from None


def _check_identity(info: WorkerInfo) -> None:
    identity = info.identity
    _text("instance_id", identity.instance_id, _MAX_WORD_CHARS, least=1)
    _text("version", identity.version, _MAX_WORD_CHARS)
    _between("started_unix_ns", identity.started_unix_ns, 0, 2**63 - 1)


def _check_model(role: str, model: ModelInfo, num_token_ids: int) -> None:
    _text("name", model.name, _MAX_NAME_CHARS)
    for name in (
        "tokenizer_fingerprint",
        "weights_fingerprint",
        "dtype",
        "drafter_kind",
        "kernels",
        "quantisation",
        "device",
    ):
        _text(name, getattr(model, name), _MAX_WORD_CHARS)
    of = f"{role} {model.name}: "
    if model.vocab_size < max(num_token_ids, 1):
        raise IncompatibleWorkerError(
            f"{of}vocab_size={model.vocab_size}, the tokenizer has {num_token_ids or 'more'} ids"
        )
    _between(f"{of}vocab_size", model.vocab_size, 1, MAX_VOCAB_SIZE)
    _between(f"{of}max_model_len", model.max_model_len, 1, MAX_MODEL_LEN)
    _between(f"{of}block_size", model.block_size, 1, MAX_BLOCK_SIZE)
    _between(f"{of}num_blocks", model.num_blocks, 0, MAX_NUM_BLOCKS)
    _between(f"{of}num_spare_threads", model.num_spare_threads, 0, MAX_SPARE_THREADS)
    _between(f"{of}eos_token_ids", len(model.eos_token_ids), 0, MAX_EOS_IDS, " of them")
    for token_id in model.eos_token_ids:
        _between(f"{of}eos_token_ids", token_id, 0, model.vocab_size - 1)


def _between(name: str, value: int, low: int, high: int, unit: str = "") -> None:
    if not low <= value <= high:
        raise IncompatibleWorkerError(f"{name}={value}{unit}, want {low}..{high}")


def _text(name: str, text: str, most: int, *, least: int = 0) -> None:
    """Refuse text that would flood the log, or flood or steer the operator's terminal."""
    if not least <= len(text) <= most or not text.isprintable():
        raise IncompatibleWorkerError(
            f"{name}={text[:_MAX_SHOWN_CHARS]!r}: want {least}..{most} printable characters, "
            f"it has {len(text)}"
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
