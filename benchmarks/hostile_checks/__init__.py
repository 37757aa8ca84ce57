"""The checks of `hostile.py`, in the order in which they run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hostile_checks.commands import (
    broken_logs,
    forked_client,
    proxies,
    refusals,
    words_of_peers,
)
from hostile_checks.deaths import deaths
from hostile_checks.models import (
    endless_templates,
    poisoned_weights,
    spoiled_models,
    tokens_of_many_files,
    words_of_callers,
)
from hostile_checks.peers import hostile_worker, one_id, two_coordinators
from hostile_checks.ports import crowded_ports, gzip_bombs, link_strangers
from hostile_checks.requests import large_requests
from hostile_checks.silence import silent_network
from hostile_checks.stalls import hung_device, paused_coordinator

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from hostile_checks.stage import Stage

CHECKS: dict[str, Callable[[Stage], Awaitable[None]]] = {
    "hung_device": hung_device,  # 1
    "paused_coordinator": paused_coordinator,  # 1
    "gzip_bombs": gzip_bombs,  # 2
    "large_requests": large_requests,  # 3
    "hostile_worker": hostile_worker,  # 4
    "broken_logs": broken_logs,  # 5
    "link_strangers": link_strangers,  # 6
    "crowded_ports": crowded_ports,  # 7
    "two_coordinators": two_coordinators,  # 8
    "words_of_callers": words_of_callers,  # 9 and 19
    "words_of_peers": words_of_peers,  # 10
    "endless_templates": endless_templates,  # 11
    "spoiled_models": spoiled_models,  # 11
    "poisoned_weights": poisoned_weights,  # 12
    "silent_network": silent_network,  # 13
    "proxies": proxies,  # 14
    "tokens_of_many_files": tokens_of_many_files,  # 15
    "forked_client": forked_client,  # 16
    "refusals": refusals,  # 17
    "one_id": one_id,  # 18
    "deaths": deaths,
}
"""By name; the number is the kind of fault."""
