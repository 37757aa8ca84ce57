"""`minedraft fetch` and `minedraft distill`; finds the model that `DIR_OR_ID` names."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from minedraft.cli.options import err, out
from minedraft.errors import ConfigError, ModelError
from minedraft.model_files.model_hub import fetch_snapshot


def resolve(path_or_id: str, *, option: str) -> str:
    """Find the directory of a model; download a hub id first.

    Args:
        path_or_id: A directory, or `owner/name` on the model hub.
        option: Name of the setting, for the message.

    Raises:
        ConfigError: neither a directory nor a model that can be fetched.
    """
    try:
        directory = Path(path_or_id).expanduser()
    except RuntimeError as failure:  # no such user
        raise ConfigError(f"{option}={path_or_id!r}: {failure}") from None
    if path_or_id and directory.is_dir():
        return str(directory.resolve())
    owner, _, name = path_or_id.partition("/")
    if not owner or not name or "/" in name or owner.startswith((".", "~")):
        raise ConfigError(
            f"{option}={path_or_id!r}: no such directory, and not a hub id; "
            "`minedraft fetch smollm2` gets demo models and prints their directories"
        )
    err.print(f"{option}: fetching {path_or_id} from the model hub")
    try:
        return str(fetch_snapshot(path_or_id))
    except ModelError as failure:
        raise ConfigError(f"{option}={path_or_id!r}: no such directory, and {failure}") from failure


def fetch(
    pair: Annotated[str, typer.Argument(help="Name of the pair: smollm2 or coder.")],
    cache_dir: Annotated[
        Path | None, typer.Option(help="Directory for the models. Default: ~/.cache/minedraft.")
    ] = None,
) -> None:
    """Fetch a pair of demo models, prepare them and print their directories."""
    from minedraft.hub.pairs import ensure_pair

    found = ensure_pair(pair, cache_dir=cache_dir)
    out.print(f"target {found.target_dir}\ndraft  {found.draft_dir}", soft_wrap=True)


def distill(
    *,
    target: Annotated[
        str, typer.Option(help="The model that needs a drafter: directory or hub id.")
    ],
    prompts: Annotated[
        list[Path],
        typer.Option(help="JSON Lines with `turns`, but not those of the bench. Repeatable."),
    ],
    output: Annotated[Path, typer.Option(help="Where to write the drafter.")],
    layers: Annotated[
        str,
        typer.Option(
            help="Layers of the target to start from, as 0,1,2,29; default: three and the last."
        ),
    ] = "",
    max_new_tokens: Annotated[int, typer.Option(min=1, help="Most tokens per answer.")] = 200,
    epochs: Annotated[float, typer.Option(help="Passes over the answers.")] = 3.4,
    peak_learning_rate: Annotated[
        float, typer.Option(help="Highest learning rate of the training.")
    ] = 1e-3,
    seed: Annotated[int, typer.Option(min=0, help="Same seed, same drafter.")] = 0,
    device: Annotated[str, typer.Option(help="cpu, cuda, ...")] = "cpu",
) -> None:
    """Make a drafter from a few layers of a target, trained on the target's own answers."""
    from minedraft.bench.prompts import load_prompts
    from minedraft.distill.options import DistillOptions
    from minedraft.distill.run import run_distill
    from minedraft.hub.progress import RichProgress

    options = DistillOptions(
        target=Path(resolve(target, option="target")),
        output=output,
        layers=_numbers(layers),
        max_new_tokens=max_new_tokens,
        epochs=epochs,
        peak_learning_rate=peak_learning_rate,
        seed=seed,
        device=device,
    )
    texts = [text for path in prompts for text in load_prompts(path)]
    with RichProgress(err) as progress:
        made = run_distill(options, texts, progress=progress)
    out.print(f"layers   {made.layers_dir}", soft_wrap=True)
    if made.complete_dir is not None:
        out.print(f"complete {made.complete_dir}", soft_wrap=True)


def _numbers(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(",") if part.strip())
    except ValueError:
        raise ConfigError(f"layers={text!r}: want numbers with commas") from None
