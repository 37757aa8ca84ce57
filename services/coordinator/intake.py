"""Turns a caller's request into samples for the engine: checks, tokenizes, resolves.

Everything that can be refused is refused here, in this order: the queue is full (before any work
is done), values out of range, a prompt that does not fit.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from minedraft.errors import InvalidRequestError
from minedraft.services.coordinator.core.request import Request
from minedraft.services.coordinator.engine import Sample
from minedraft.services.coordinator.streams import EventStream
from minedraft.services.coordinator.text.output import OutputProcessor
from minedraft.types import RequestId, RowParams
from minedraft.validation import (
    validate_cache_salt,
    validate_chat,
    validate_debug,
    validate_priority,
    validate_prompt,
    validate_request_id,
    validate_resume_token,
    validate_resumed,
    validate_sampling,
    validate_speculation,
    validate_text,
)

if TYPE_CHECKING:
    from minedraft.api import GenerationRequest
    from minedraft.services.coordinator.text.pool import Texts
    from minedraft.services.coordinator.text.tokenizer import Tokenizer
    from minedraft.types import ModelInfo, SamplingParams


_SLICE_S = 0.002
"""Longest slice of walking a resumed output before the event loop serves others."""
_SLICE_TOKENS = 8
"""Tokens between two looks at the clock."""
DEFAULT_MAX_TOKENS: Final = 16
"""Default of max_tokens for a text or token prompt."""


@dataclass(frozen=True, slots=True)
class Intake:
    """Limits of requests.

    Args:
        tokenizer: The target's; None: token ids only.
        texts: Tokenizes, if there is a tokenizer.
        model: The target.
        max_draft_tokens: Most k a request may ask for.
        walk: Shared by all requests of a service.
    """

    tokenizer: Tokenizer | None
    texts: Texts | None
    model: ModelInfo
    max_draft_tokens: int
    walk: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Lock for walking a resumed output: one at a time, however many callers resume."""

    async def accept(
        self, asked: GenerationRequest
    ) -> tuple[str, int, int, list[Sample], EventStream]:
        """Check a request and build its samples.

        Returns:
            Request id, seed, prompt length, the samples that are wanted and their stream.

        Raises:
            InvalidRequestError: a field is out of range; names field and value.
        """
        sampling = asked.sampling
        validate_request_id(asked.request_id)
        validate_resume_token(asked.resume_token)
        validate_priority(asked.priority)
        validate_cache_salt(asked.cache_salt)
        validate_sampling(
            sampling,
            vocab_size=self.model.vocab_size,
            has_tokenizer=self.tokenizer is not None,
            eos_token_ids=self.model.eos_token_ids,
        )
        validate_speculation(
            asked.speculation,
            max_draft_tokens=self.max_draft_tokens,
        )
        if asked.debug is not None:
            validate_debug(
                asked.debug,
                vocab_size=self.model.vocab_size,
                max_model_len=self.model.max_model_len,
            )
        prompt = await self._prompt(asked)
        max_tokens = resolve_max_tokens(
            sampling.max_tokens,
            num_prompt_tokens=len(prompt),
            max_len=self._max_len(),
            is_chat=asked.messages is not None,
        )
        validate_prompt(
            prompt,
            vocab_size=self.model.vocab_size,
            max_model_len=self.model.max_model_len,
            max_tokens=max_tokens,
            min_tokens=sampling.min_tokens,
        )
        validate_resumed(
            asked.resumed,
            sampling=sampling,
            vocab_size=self.model.vocab_size,
            max_tokens=max_tokens,
        )
        request_id = asked.request_id or f"gen-{secrets.token_hex(8)}"
        seed = sampling.seed if sampling.seed is not None else secrets.randbits(64)
        held = {sample.index: sample for sample in asked.resumed}
        wanted = [i for i in range(sampling.n) if i not in held or not held[i].is_finished]
        stream = EventStream(len(wanted))
        bad_words = await self._bad_words(sampling)
        max_token_id = max(prompt)
        samples = [
            Sample(
                request=Request(
                    request_id=sample_id(request_id, index),
                    prompt_token_ids=prompt,
                    params=self._row_params(sampling, derive_seed(seed, index), bad_words),
                    max_tokens=max_tokens,
                    speculation=asked.speculation,
                    debug=asked.debug,
                    max_token_id=max_token_id,
                    priority=asked.priority,
                    cache_salt=asked.cache_salt,
                ),
                processor=OutputProcessor(
                    self.tokenizer,
                    prompt,
                    sampling,
                    sampling.stop_token_ids,
                    self.model.eos_token_ids,
                    max_tokens,
                ),
                stream=stream,
                index=index,
            )
            for index in wanted
        ]
        for sample in samples:
            if sample.index in held:
                await self._go_on(sample, held[sample.index].token_ids)
        return request_id, seed, len(prompt), samples, stream

    def _max_len(self) -> int:
        """Return the most tokens of a sequence, by context and pool; the pool holds all but one."""
        num_positions = self.model.num_blocks * self.model.block_size
        return min(self.model.max_model_len, num_positions + 1)

    async def _prompt(self, asked: GenerationRequest) -> tuple[int, ...]:
        if asked.token_ids is not None:
            return asked.token_ids
        if self.tokenizer is None or self.texts is None:
            raise without_tokenizer()
        # Not more text than could ever fit is looked at, nor more of its tokens taken.
        max_tokens = self.model.max_model_len
        max_bytes = max_tokens * self.tokenizer.longest_token_bytes
        if asked.text is not None:
            validate_text(asked.text, max_bytes=max_bytes)
            parse = asked.parse_special_tokens
            return await self.texts.encode(
                asked.text, parse_special_tokens=parse, max_tokens=max_tokens
            )
        messages = [(message.role, message.content) for message in asked.messages or ()]
        validate_chat(messages, max_bytes=max_bytes)
        return await self.texts.encode_chat(messages, max_tokens=max_tokens, max_chars=max_bytes)

    async def _bad_words(self, sampling: SamplingParams) -> tuple[tuple[int, ...], ...]:
        if self.texts is None or not sampling.bad_words:
            return ()
        return await self.texts.encode_bad_words(sampling.bad_words)

    async def _go_on(self, sample: Sample, token_ids: tuple[int, ...]) -> None:
        """Start a sample from tokens that its caller holds, and drop their text."""
        num_kept = 0
        async with self.walk:
            until = time.perf_counter() + _SLICE_S
            for start in range(0, len(token_ids), _SLICE_TOKENS):
                progress = sample.processor.push(token_ids[start : start + _SLICE_TOKENS])
                num_kept += progress.num_kept
                sample.finish = progress.finish
                if progress.finish is not None:
                    break
                if time.perf_counter() > until:
                    await asyncio.sleep(0)
                    until = time.perf_counter() + _SLICE_S
        sample.request.go_on_from(token_ids[:num_kept])

    def _row_params(
        self, sampling: SamplingParams, seed: int, bad_words: tuple[tuple[int, ...], ...]
    ) -> RowParams:
        eos = () if sampling.ignore_eos else self.model.eos_token_ids
        return RowParams(
            temperature=sampling.temperature,
            top_k=min(sampling.top_k, self.model.vocab_size),
            top_p=sampling.top_p,
            min_p=sampling.min_p,
            repetition_penalty=sampling.repetition_penalty,
            presence_penalty=sampling.presence_penalty,
            frequency_penalty=sampling.frequency_penalty,
            logit_bias=sampling.logit_bias,
            min_tokens=sampling.min_tokens,
            stop_ids=(*eos, *sampling.stop_token_ids),
            bad_words=bad_words,
            allowed_token_ids=sampling.allowed_token_ids,
            seed=seed,
            logprobs=sampling.logprobs,
        )


def resolve_max_tokens(
    max_tokens: int | None, *, num_prompt_tokens: int, max_len: int, is_chat: bool
) -> int:
    """Fill in max_tokens if the caller did not set it.

    Args:
        max_tokens: What the caller said.
        num_prompt_tokens: Special tokens included.
        max_len: Most tokens of one sequence, prompt and output together.
        is_chat: Whether the prompt is a conversation.

    Returns:
        `max_tokens` if given. Else what `max_len` leaves for a chat, and for other prompts 16, or
        what it leaves if that is less. At least 1: a prompt that leaves no room is refused
        elsewhere.
    """
    if max_tokens is not None:
        return max_tokens
    room = max(max_len - num_prompt_tokens, 1)
    return room if is_chat else min(room, DEFAULT_MAX_TOKENS)


def without_tokenizer() -> InvalidRequestError:
    """Build the error for a text prompt without a tokenizer."""
    return InvalidRequestError(
        "prompt: this service has no tokenizer: restart the coordinator with --tokenizer DIR, "
        "or send token_ids",
        field="prompt",
    )


def sample_id(request_id: str, index: int) -> RequestId:
    """Return the id of one sample inside the engine; it is unique for any ids of requests."""
    return RequestId(f"{index}#{request_id}")


def derive_seed(seed: int, index: int) -> int:
    """Return the seed of sample `index`: the request's for the first, hashed for the others."""
    if index == 0:
        return seed
    message = seed.to_bytes(8, "little") + index.to_bytes(8, "little")
    return int.from_bytes(hashlib.blake2b(message, digest_size=8).digest(), "little")
