"""Shows how trial steps get on, which measure what steps cost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from minedraft.cli.status import costs
from minedraft.errors import MineDraftError

if TYPE_CHECKING:
    from rich.console import Console

    from minedraft.admin import CostStatus
    from minedraft.cli.cluster import Cluster


async def show_measuring(cluster: Cluster, console: Console) -> None:
    """Draw a bar until trial steps are over, and say what is known of costs then.

    The service serves meanwhile; a request ends the trials. Without a terminal there is no bar.
    """
    columns = (
        TextColumn("measuring what steps cost"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    hidden = not console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=hidden) as progress:
        bar = progress.add_task("trials", total=None)

        def update(found: CostStatus) -> None:
            progress.update(bar, completed=found.num_trials_over, total=found.num_trials)

        try:
            known = await cluster.measured(update)
        except MineDraftError:
            return  # the one that watches the cluster says why
    if said := costs(known):
        console.print(f"costs: {said}", soft_wrap=True)
