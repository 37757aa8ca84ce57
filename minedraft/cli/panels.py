"""Lays out the help of a command: the common options first, the others in panels by noun.

Changes how options are shown, never what they do.
"""

from __future__ import annotations

from copy import copy
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from rich.markup import escape
from typer.core import TyperCommand

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_COMMON: Final[Mapping[str, frozenset[str]]] = MappingProxyType(
    {
        "serve": frozenset(
            {"target", "draft", "pair", "mode", "shape", "policy", "batch", "k", "listen", "http"}
        ),
        "coordinator": frozenset(
            {"listen", "verifier", "drafters", "tokenizer", "num_batches", "max_batch_size",
             "num_draft_tokens", "shape", "policy"}
        ),
        "drafter": frozenset({"model", "listen", "device", "dtype"}),
        "verifier": frozenset({"model", "listen", "device", "dtype"}),
        "gateway": frozenset({"listen", "coordinator", "served_model_name"}),
        "bench": frozenset({"prompts", "modes", "batch", "k", "max_tokens", "json_file"}),
        "simulate": frozenset(
            {"bench", "trace", "costs", "batches", "batch", "k", "shape", "num_drafters",
             "json_file", "svg", "seed"}
        ),
        "plan": frozenset(
            {"target", "drafters", "gpus", "rate", "slo", "acceptance", "json_file"}
        ),
        "generate": frozenset({"max_tokens", "temperature", "seed", "system", "as_json"}),
        "swap": frozenset({"model", "to", "replace", "timeout"}),
    }
)  # fmt: skip
"""By command: the options that most people need. They stand in the first panel."""

_PANELS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "Sampling": ("top_p", "top_k", "n", "stop"),
        "Prompt and answer": ("chat", "stream"),
        "Requests": (
            "num_prompts", "max_prompt_chars", "synthetic_acceptance", "requests", "prompt_tokens",
            "output_tokens", "rate", "rate_scale", "concurrency", "aborts", "max_steps", "context",
        ),
        "Simulated devices": ("verify_ms", "draft_ms", "hop_ms"),
        "Services of its own": ("target", "draft", "pair"),
        "Speculation": (
            "acceptance", "kind", "drafter_kind", "max_catch_up_tokens", "max_draft_tokens",
            "run_ahead", "fallback",
            "q_width", "model_roots", "spread", "autocorrelation", "auc",
        ),
        "Policies": (
            "num_speculative_tokens_per_batch_size", "tetris_capacity", "tetris_extra_proposals",
            "tpot_slo_ms",
        ),
        "Batches and queue": (
            "assignment", "cost_cache", "trial_s", "max_rows", "prefill_budget_tokens",
            "prefill_stall", "max_waiting_requests", "priority", "cache_salt",
        ),
        "Device and memory": (
            "device", "dtype", "kernels", "num_blocks", "block_size", "prefix_cache", "threads",
            "cpus", "spare_cpus", "verifier_cpus", "drafter_cpus", "tp_size", "tp_timeout_s",
            "tp", "launch", "costs",
        ),
        "Token link": ("link", "link_address", "link_bind_host", "link_timeout_s"),
        "Time limits": (
            "step_timeout_s", "reconnect_s", "request_timeout_s", "comment_s", "slow_reader_s",
            "grace_s",
        ),
        "HTTP": ("cors_origins", "max_body_bytes", "max_connections"),
        "Health and logs": (
            "health_listen", "metrics_listen", "metrics", "log_dir", "log_level",
            "log_json", "debug_requests",
        ),
        "Connection": ("address", "http_proxy"),
        "Security": ("tls_cert", "tls_key", "tls_ca", "token_file", "insecure"),
    }
)  # fmt: skip
"""By panel, in the order of the help: the options that belong there on every command."""

_PANEL_OF: Final = {name: panel for panel, names in _PANELS.items() for name in names}
_ORDER: Final = {panel: place for place, panel in enumerate(_PANELS)}

_METAVARS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "HOST:PORT": (
            "address", "listen", "health_listen", "metrics_listen", "verifier", "drafters",
            "link_address", "to", "replace", "http", "coordinator",
        ),
        "HOST": ("link_bind_host",),
        "DIR_OR_ID": ("target", "draft", "model"),
        "DIR": (
            "tokenizer", "cost_cache", "log_dir", "model_roots", "cache_dir", "output", "out_dir",
        ),
        "FILE": (
            "tls_cert", "tls_key", "tls_ca", "token_file", "prompts", "json_file", "out", "trace",
            "bench", "costs", "svg",
        ),
        "CORES": ("cpus", "spare_cpus", "verifier_cpus", "drafter_cpus"),
        "SECONDS": ("timeout", "interval"),
    }
)  # fmt: skip
_METAVAR_OF: Final = {name: metavar for metavar, names in _METAVARS.items() for name in names}
_TYPES: Final = MappingProxyType({"int": "N", "float": "NUMBER"})


class Command(TyperCommand):
    """A command whose help has panels."""

    def format_help(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401  # click's signature
        """Write the help."""
        TyperCommand.format_help(arranged(self, ctx), ctx, formatter)


def arranged(command: Any, ctx: Any) -> Any:  # noqa: ANN401  # typer's own, which it does not name
    """Copy a command for its help: options in panels, their variables explained at the end.

    Args:
        command: A command or a group of typer's.
        ctx: Of this run; knows the prefix of the variables.
    """
    shown = copy(command)
    shown.params = sorted(
        (_option(command.name, each, ctx) if _is_option(each) else each for each in command.params),
        key=lambda each: _ORDER.get(each.rich_help_panel or "", -1),
    )
    command.get_help_option(ctx).metavar = ""
    options = [each for each in shown.params if _is_option(each) and not each.hidden]
    if ctx.parent is not None and options:
        shown.epilog = "\n".join(_epilog(options, ctx.auto_envvar_prefix))
    return shown


def panel_of(command: str, option: str) -> str | None:
    """Name the panel of an option; None: the first one."""
    return None if option in _COMMON.get(command, ()) else _PANEL_OF.get(option)


def _is_option(parameter: Any) -> bool:  # noqa: ANN401
    return bool(parameter.param_type_name == "option")


def _option(command: str, option: Any, ctx: Any) -> Any:  # noqa: ANN401
    """Copy an option for the help. Its default ends the text and takes no line of its own."""
    shown = copy(option)
    shown.rich_help_panel = panel_of(command, option.name)
    shown.metavar = _metavar(option)
    shown.show_envvar = shown.show_default = False
    shown.help = escape(option.help or "")
    if (
        option.show_default
        and not option.is_flag
        and (default := option.get_default(ctx)) not in (None, "")
    ):
        shown.help += f" [dim]\\[default: {default}][/dim]"
    return shown


def _metavar(option: Any) -> str:  # noqa: ANN401
    """Name what an option takes: as it says itself, by its name, by its unit, or by its type."""
    if option.is_flag:
        return ""
    if option.metavar:
        return str(option.metavar)
    if option.name in _METAVAR_OF:
        return _METAVAR_OF[option.name]
    return "SECONDS" if option.name.endswith("_s") else _TYPES.get(option.bare_type(), "TEXT")


def _epilog(options: list[Any], prefix: str) -> Iterator[str]:
    """Say which variable sets which option: the rule, then each option that breaks it."""
    own = [option for option in options if option.allow_from_autoenv]
    irregular = {_flag(option): name for option in own if (name := _variable(option, prefix))}
    regular = [flag for flag in map(_flag, own) if flag not in irregular]
    if regular:
        by_rule = f"{prefix}_{regular[0].removeprefix('--').replace('-', '_').upper()}"
        yield f"A variable can set an option too: {by_rule} sets {regular[0]}, and so on."
    if irregular:
        named = ", ".join(f"{name} ({flag})" for flag, name in irregular.items())
        yield f"{'By other names' if regular else 'Variables set options too'}: {named}."


def _flag(option: Any) -> str:  # noqa: ANN401
    return str(max(option.opts, key=len))


def _variable(option: Any, prefix: str) -> str:  # noqa: ANN401
    """Name the variable of an option whose flag does not tell it; empty: the flag does."""
    if option.envvar:
        return str(option.envvar)
    told = _flag(option).removeprefix("--").replace("-", "_")
    return "" if told == option.name else f"{prefix}_{option.name.upper()}"
