"""`minedraft generate` and `minedraft chat`: send text, show the answer."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.text import Text

from minedraft.api import Completion
from minedraft.cli.options import DEFAULT_ADDRESS, Address, HttpProxy, connected, err, out
from minedraft.cli.streams import read_stdin
from minedraft.client import SyncClient
from minedraft.client.options import GenerateOptions
from minedraft.client.resume import RetryPolicy
from minedraft.errors import ConfigError, MineDraftError
from minedraft.plain_text import plain
from minedraft.security.config import SecurityConfig

Temperature = Annotated[float, typer.Option(help="0: always the likeliest token.")]
Seed = Annotated[
    int | None,
    typer.Option(min=0, help="Coupled acceptance: same seed, same text. Default: drawn."),
]
_MAX_TOKENS = 256
_MOST_WAITS_SAID = 8


def generate(
    prompt: Annotated[str, typer.Argument(help="Text to continue or answer. - reads stdin.")],
    *,
    address: Address = DEFAULT_ADDRESS,
    max_tokens: Annotated[int, typer.Option(min=1, help="Most output tokens.")] = _MAX_TOKENS,
    temperature: Temperature = 0.7,
    top_p: Annotated[float, typer.Option(help="Sample from this share of the distribution.")] = 1.0,
    top_k: Annotated[int, typer.Option(min=0, help="Sample from so many tokens. 0: all.")] = 0,
    seed: Seed = None,
    n: Annotated[int, typer.Option("--n", min=1, help="Number of samples.")] = 1,
    stop: Annotated[list[str] | None, typer.Option(help="Stop at this text. Repeatable.")] = None,
    stream: Annotated[bool, typer.Option(help="Show text as it arrives.")] = True,
    priority: Annotated[
        int, typer.Option(min=-100, max=100, help="Lower goes first.")
    ] = 0,
    cache_salt: Annotated[
        str, typer.Option(help="Share cached prefixes only with requests of this salt.")
    ] = "",
    chat: Annotated[
        bool | None,
        typer.Option("--chat/--raw", help="Send the prompt as a chat message, or as plain text. "
                     "Default: chat if the target has a template."),
    ] = None,
    system: Annotated[str, typer.Option(help="System message of the chat.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")] = False,
    http_proxy: HttpProxy = False,
    security: SecurityConfig,
) -> None:  # fmt: skip
    """Generate text from one prompt."""
    text = read_stdin() if prompt == "-" else prompt
    options: GenerateOptions = {
        "max_tokens": max_tokens,
        "temperature": temperature,
        "top_p": top_p,
        "top_k": top_k,
        "seed": seed,
        "n": n,
        "stop": stop or (),
        "priority": priority,
        "cache_salt": cache_salt,
    }
    with connected(address, security, http_proxy=http_proxy, retry=patient()) as client:
        if chat is None:
            chat = client.model_info().has_chat_template
        messages = _messages(text, system) if chat else None
        start = time.perf_counter()
        if stream and n == 1 and not as_json:
            completion = _show(client, None if chat else text, messages, options)
        else:
            completion = client.generate(None if chat else text, messages=messages, **options)
            if as_json:
                out.document(_as_json(completion))
                return
            for choice in completion.choices:
                if n > 1:
                    out.rule(f"sample {choice.index}")
                out.write(choice.text)
        err.print(summary(completion, time.perf_counter() - start), style="dim", soft_wrap=True)


def chat(
    *,
    address: Address = DEFAULT_ADDRESS,
    max_tokens: Annotated[
        int | None, typer.Option(min=1, help="Most output tokens per answer. Default: what fits.")
    ] = None,
    temperature: Temperature = 0.7,
    seed: Seed = None,
    system: Annotated[str, typer.Option(help="System message.")] = "",
    http_proxy: HttpProxy = False,
    security: SecurityConfig,
) -> None:
    """Chat with the target. Ctrl-C stops an answer, Ctrl-D ends the chat."""
    history = [{"role": "system", "content": system}] if system else []
    options: GenerateOptions = {"max_tokens": max_tokens, "temperature": temperature, "seed": seed}
    with connected(address, security, http_proxy=http_proxy, retry=patient()) as client:
        name = client.model_info().model.name
        welcome = plain(f"{name} at {address}; Ctrl-D ends the chat")
        err.print(welcome, style="dim", soft_wrap=True)
        while (said := _ask()) is not None:
            if not said.strip():
                continue
            history.append({"role": "user", "content": said})
            answer = _answer(client, history, options)
            if answer is None:
                history.pop()
            else:
                history.append({"role": "assistant", "content": answer})


def patient() -> RetryPolicy:
    """Build a retry policy that reports each cause of waiting once."""
    said: set[str] = set()

    def say(failure: MineDraftError) -> None:
        if str(failure) not in said and len(said) < _MOST_WAITS_SAID:
            said.add(str(failure))
            waiting = plain(f"waiting up to {policy.patience_s:g} s: {failure}")
            err.print(waiting, style="dim", soft_wrap=True)

    policy = RetryPolicy(on_wait=say)
    return policy


def summary(completion: Completion, wall_s: float) -> str:
    """Summarize an answer in one line."""
    choice, stats = completion.choices[0], completion.speculation
    usage = completion.usage
    num_tokens = usage.num_output_tokens
    parts = [
        f"{choice.finish_reason.value} after {num_tokens} tokens",
        f"{num_tokens / wall_s:.1f} tokens/s" if wall_s else "",
        f"first token {choice.timing.ttft_ns / 1e6:.0f} ms",
        f"{stats.mean_acceptance_length:.2f} tokens per verify step" if stats.num_drafts else "",
        f"{usage.num_cached_tokens} of {usage.num_prompt_tokens} prompt tokens cached"
        if usage.num_cached_tokens
        else "",
        f"seed {completion.seed}",
    ]
    return ", ".join(part for part in parts if part)


def _show(
    client: SyncClient,
    prompt: str | None,
    messages: list[dict[str, str]] | None,
    options: GenerateOptions,
) -> Completion:
    stream = client.stream(prompt, messages=messages, **options)
    has_text = False
    try:
        for delta in stream:
            out.write(delta.text, end="")
            has_text = has_text or bool(delta.text)
    except MineDraftError:
        if has_text:  # what was wrong with the rest comes on a line of its own
            out.write("")
        raise
    out.write("")
    return stream.completion


def _answer(
    client: SyncClient, history: list[dict[str, str]], options: GenerateOptions
) -> str | None:
    """Stream one answer; None if it failed or the user stopped it before its first word."""
    pieces: list[str] = []
    start = time.perf_counter()
    stream = client.stream(messages=history, **options)
    try:
        for delta in stream:
            pieces.append(delta.text)
            out.write(delta.text, end="")
    except KeyboardInterrupt:  # the half answer stays: a person may refer to it
        err.print(" [stopped]", style="dim")
        return "".join(pieces) or None
    except MineDraftError as failure:  # a chat outlives one bad question
        if pieces:
            out.write("")
        err.print(plain(f"error: {failure}"), style="red", soft_wrap=True)
        return None
    out.write("")
    err.print(summary(stream.completion, time.perf_counter() - start), style="dim", soft_wrap=True)
    return "".join(pieces)


def _ask() -> str | None:
    try:
        with suppress(EOFError, KeyboardInterrupt):
            return out.input(Text("> ", style="bold"))
    except UnicodeDecodeError as failure:
        raise ConfigError(f"stdin: not {failure.encoding}: byte {failure.start}") from None
    return None


def _messages(text: str, system: str) -> list[dict[str, str]]:
    said = [{"role": "user", "content": text}]
    return [{"role": "system", "content": system}, *said] if system else said


def _as_json(completion: Completion) -> dict[str, Any]:
    def plain(value: Any) -> Any:  # noqa: ANN401  # whatever asdict gives
        if isinstance(value, dict):
            return {key: plain(each) for key, each in value.items()}
        if isinstance(value, list | tuple):
            return [plain(each) for each in value]
        return getattr(value, "value", value)  # enums by value

    return {str(key): plain(value) for key, value in asdict(completion).items()}
