"""Which chat templates a model directory has, and which of them formats a chat."""

from __future__ import annotations

import json
import os

import pytest

from minedraft.errors import ModelError
from minedraft.model_files.chat_templates import (
    MAX_TEMPLATE_CHARS,
    MAX_TEMPLATES,
    TemplateSources,
    read_template_sources,
)


def directory(tmp_path, entry=None, **files):
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": entry}))
    for name, text in files.items():
        path = tmp_path / f"{name.replace('__', '/')}.jinja"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return tmp_path


def named(**templates):
    return [{"name": name, "template": text} for name, text in templates.items()]


@pytest.mark.parametrize(
    ("entry", "found"),
    [
        (None, TemplateSources()),
        ("", TemplateSources()),
        ([], TemplateSources()),
        ("T", TemplateSources("T")),
        (named(rag="R", default="T"), TemplateSources("T")),
        (named(tool_use="U", rag="R"), TemplateSources(None, ("rag", "tool_use"))),
        (named(only="T"), TemplateSources(None, ("only",))),
    ],
)
def test_a_template_is_found_in_the_config(tmp_path, entry, found):
    assert read_template_sources(directory(tmp_path, entry)) == found


def test_a_directory_without_a_config_has_none(tmp_path):
    assert read_template_sources(tmp_path) == TemplateSources()


def test_the_template_file_wins(tmp_path):
    found = read_template_sources(directory(tmp_path, "T", chat_template="é\n"))
    assert found == TemplateSources("é\n")


def test_files_without_a_default_win_over_the_config_too(tmp_path):
    found = read_template_sources(directory(tmp_path, "T", additional_chat_templates__rag="R"))
    assert found == TemplateSources(None, ("rag",))


@pytest.mark.parametrize(
    ("entry", "field"),
    [
        (3, "chat_template is 3"),
        ({"a": 1}, "chat_template is an object"),
        (["x"], r"chat_template\[0\] is 'x'"),
        ([{"name": "x"}], r"chat_template\[0\].template is null"),
        ([{"template": "x"}], r"chat_template\[0\].name is null"),
        ([{"name": 3, "template": "x"}], r"chat_template\[0\].name is 3"),
    ],
)
def test_an_entry_of_another_shape_is_refused(tmp_path, entry, field):
    with pytest.raises(ModelError, match=rf"tokenizer_config\.json: {field}, want"):
        read_template_sources(directory(tmp_path, entry))


def test_a_template_over_the_limit_is_refused(tmp_path):
    for entry in ("x" * (MAX_TEMPLATE_CHARS + 1), named(a="x" * (MAX_TEMPLATE_CHARS + 1))):
        with pytest.raises(ModelError, match=f"characters, want at most {MAX_TEMPLATE_CHARS}"):
            read_template_sources(directory(tmp_path, entry))
    with pytest.raises(ModelError, match=r"chat_template\.jinja has 1048577 characters"):
        read_template_sources(directory(tmp_path, chat_template="x" * (MAX_TEMPLATE_CHARS + 1)))


def test_too_many_templates_are_refused(tmp_path):
    many = {f"t{i}": "x" for i in range(MAX_TEMPLATES + 1)}
    with pytest.raises(ModelError, match=f"at most {MAX_TEMPLATES} templates"):
        read_template_sources(directory(tmp_path, named(**many)))
    files = {f"additional_chat_templates__{name}": text for name, text in many.items()}
    with pytest.raises(ModelError, match=f"at most {MAX_TEMPLATES}"):
        read_template_sources(directory(tmp_path, **files))


def test_a_template_file_that_is_no_text_or_no_file_is_refused(tmp_path):
    (tmp_path / "chat_template.jinja").write_bytes(b"\xff\xfe")
    with pytest.raises(ModelError, match=r"chat_template\.jinja: is no UTF-8"):
        read_template_sources(tmp_path)
    (tmp_path / "chat_template.jinja").unlink()
    os.mkfifo(tmp_path / "chat_template.jinja")
    with pytest.raises(ModelError, match="is a FIFO"):
        read_template_sources(tmp_path)
