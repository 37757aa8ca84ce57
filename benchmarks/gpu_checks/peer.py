"""The other end of a link, in a process of its own: JSON orders on stdin, answers on stdout."""

from __future__ import annotations

import asyncio
import json
import sys
import time

import torch  # noqa: F401 now, so that forming does not wait for it

from gpu_checks.links import _rows, _spec
from minedraft.errors import ConfigError, MineDraftError
from minedraft.link import form
from minedraft.link.options import LinkOptions
from minedraft.packets.packet import DraftPacket
from minedraft.packets.spec import Transport


def say(what: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


async def main(device: str) -> None:
    sender = None
    say({"up": True})
    while line := await asyncio.to_thread(sys.stdin.readline):
        order = json.loads(line)
        if "form" in order:
            name, transport, address = order["form"]
            try:
                sender = await form.form_sender(
                    _spec(name, Transport(transport), address),
                    on_lost=lambda *_: None,
                    options=LinkOptions(device=device),
                )
                say({"formed": sender.description})
            except (MineDraftError, ConfigError) as err:
                say({"failed": f"{type(err).__name__}: {err}"})
        elif "send" in order:
            for step in range(order["send"]):
                sender.send(DraftPacket(1, step, 0, _rows(time.monotonic_ns())))
                await asyncio.sleep(order["pause_s"])
            say({"sent": order["send"]})
        else:
            sender.close()
            say({"closed": True})


asyncio.run(main(sys.argv[1]))
