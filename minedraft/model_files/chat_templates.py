"""Finds the chat templates of a model, and the one that formats a chat.

Refuses to compile or render one: that is the coordinator's. As transformers: files win over
tokenizer_config.json, and of several templates the one named `default` is used.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from minedraft.errors import ModelError
from minedraft.model_files.json_file import JsonObject, read_bytes, read_object

if TYPE_CHECKING:
    from pathlib import Path

MAX_TEMPLATE_CHARS: Final = 1 << 20
"""Longest template; real ones have up to some 30 thousand characters."""
MAX_TEMPLATES: Final = 64
"""Most templates per model; real models have up to three."""
TEMPLATE_FILE: Final = "chat_template.jinja"
TEMPLATE_DIRECTORY: Final = "additional_chat_templates"
DEFAULT: Final = "default"


@dataclass(frozen=True, slots=True)
class TemplateSources:
    """The chat templates of a model directory."""

    default: str | None = None
    """Source of the template that formats a chat; None: there is none for it."""
    names: tuple[str, ...] = ()
    """Of the templates there are, when none of them is the default."""


def read_template_sources(model_dir: Path) -> TemplateSources:
    """Find the chat templates of a model directory.

    Raises:
        ModelError: A file cannot be used, or the field has another shape; names both.
    """
    named = _files(model_dir)
    if not named:
        path = model_dir / "tokenizer_config.json"
        config = read_object(path) or JsonObject(path, {})
        entry = config.values.get("chat_template")
        if isinstance(entry, str) or entry is None:
            if entry:
                _refuse_long(path, "chat_template", entry)
            return TemplateSources(entry or None)
        named = _entries(config)
    if DEFAULT in named:
        return TemplateSources(named[DEFAULT])
    return TemplateSources(None, tuple(sorted(named)))


def _entries(config: JsonObject) -> dict[str, str]:
    if not isinstance(config.values["chat_template"], list):
        config.refuse("chat_template", "a string, or a list of objects with name and template")
    named = {}
    for entry in config.parts("chat_template"):
        name, template = entry.text("name"), entry.text("template")
        if not name or template is None:
            entry.refuse("template" if name else "name", "a string")
        _refuse_long(entry.path, entry.name("template"), template)
        named[name] = template
    if len(named) > MAX_TEMPLATES:
        config.refuse("chat_template", f"at most {MAX_TEMPLATES} templates")
    return named


def _files(model_dir: Path) -> dict[str, str]:
    named = {}
    default = _read(model_dir / TEMPLATE_FILE)
    if default is not None:
        named[DEFAULT] = default
    further = model_dir / TEMPLATE_DIRECTORY
    try:
        paths = sorted(further.glob("*.jinja"))
    except OSError as err:
        raise ModelError(f"{further}: cannot be read: {err.strerror}") from err
    if len(paths) > MAX_TEMPLATES:
        raise ModelError(f"{further}: has {len(paths)} templates, want at most {MAX_TEMPLATES}")
    for path in paths:
        source = _read(path)
        if source is not None:
            named[path.stem] = source
    return named


def _read(path: Path) -> str | None:
    content = read_bytes(path, 4 * MAX_TEMPLATE_CHARS)
    if content is None:
        return None
    try:
        source = content.decode("utf-8")
    except UnicodeDecodeError as err:
        raise ModelError(f"{path}: is no UTF-8 at byte {err.start}") from err
    _refuse_long(path, "", source)
    return source.replace("\r\n", "\n").replace("\r", "\n")  # as a file opened as text


def _refuse_long(path: Path, field: str, source: str) -> None:
    if len(source) > MAX_TEMPLATE_CHARS:
        where = f"{path}: {field}" if field else str(path)
        raise ModelError(f"{where} has {len(source)} characters, want at most {MAX_TEMPLATE_CHARS}")
