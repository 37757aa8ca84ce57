from __future__ import annotations

from dataclasses import dataclass, field

import pytest
import typer
from typer.testing import CliRunner

from minedraft.cli import config_options
from minedraft.errors import ConfigError


@dataclass(frozen=True)
class Config:
    model: str
    """Directory of
    the model."""
    names: tuple[str, ...] = ("a", "b")
    k: int = 4
    """Draft tokens."""
    health: str | None = None
    eager: bool = False
    places: tuple[str, ...] = field(default_factory=tuple)

    def __post_init__(self) -> None:
        if self.k > 9:
            raise ConfigError(f"k={self.k}, want 0..9")


@pytest.fixture
def run():
    app = typer.Typer()
    built: list[Config] = []

    def command(**values):
        built.append(config_options.build(Config, values))

    import inspect

    parameters = config_options.parameters(Config)
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in parameters}
    app.command()(command)

    def invoke(*arguments: str) -> Config:
        result = CliRunner().invoke(app, arguments)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == 0, result.output
        return built[-1]

    return invoke


@dataclass(frozen=True)
class Inheriting(Config):
    names: tuple[str, ...] = ("c",)
    """Its own names."""
    size: int = 1
    """Bytes."""


def test_an_inherited_field_has_its_help_its_place_and_what_the_subclass_says_of_it():
    assert config_options.field_docs(Inheriting) == {
        "model": "Directory of the model.",
        "k": "Draft tokens.",
        "names": "Its own names.",
        "size": "Bytes.",
    }
    parameters = {each.name: each for each in config_options.parameters(Inheriting)}
    assert list(parameters) == ["model", "names", "k", "health", "eager", "places", "size"]
    assert parameters["names"].default == "c"


def test_fields_without_a_default_are_required_and_the_rest_have_theirs(run):
    assert run("--model", "m") == Config("m")
    with pytest.raises(AssertionError, match="--model"):
        run()


def test_every_kind_of_field_can_be_set(run):
    wanted = Config("m", ("x", "y"), 3, "h:1", eager=True, places=("p",))
    assert wanted == run(
        "--model", "m", "--names", "x, y,", "--k", "3", "--health", "h:1", "--eager",
        "--places", "p",
    )  # fmt: skip


def test_an_empty_list_is_empty(run):
    assert run("--model", "m", "--names", "").names == ()


def test_the_configs_own_check_speaks(run):
    with pytest.raises(ConfigError, match="k=10, want"):
        run("--model", "m", "--k", "10")


def test_the_docstring_under_a_field_is_its_help():
    docs = config_options.field_docs(Config)
    assert docs == {"model": "Directory of the model.", "k": "Draft tokens."}
