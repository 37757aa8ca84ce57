"""Kinds 5, 10, 14, 16, 17: broken logs, words of peers, proxies, forks, a machine's refusals."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from fleet import until

from hostile_checks.peers import honest_info, lying_drafter
from hostile_checks.stage import is_linked, python_path

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hostile_checks.stage import Stage

_LIMIT_S = 40.0
_ESCAPES = "a[/b]c\x1b]0;owned\x07\x1b[2J"
_PROXY = "http://127.0.0.1:9"
_FORKED = """
import os, sys, time
import minedraft
with minedraft.SyncClient(sys.argv[1]) as client:
    client.generate([5, 6], max_tokens=2)
    pid = os.fork()
    if pid == 0:
        began = time.monotonic()
        try:
            client.generate([5, 6], max_tokens=2, timeout_s=5)
            code = 1
        except minedraft.errors.PreconditionError:
            code = 0 if time.monotonic() - began < 5 else 2
        os._exit(code)
    _, status = os.waitpid(pid, 0)
    sys.exit(os.waitstatus_to_exitcode(status))
"""


async def command(
    *arguments: str,
    env: Mapping[str, str] | None = None,
    stdout: str | int = asyncio.subprocess.PIPE,
    program: tuple[str, ...] = ("-m", "minedraft.cli.main"),
) -> tuple[int | None, str]:
    """Run the command line as a person does.

    Args:
        arguments: Of `minedraft`.
        env: Added to the environment; an empty value removes the name.
        stdout: A path, or what asyncio takes.
        program: What Python runs.

    Returns:
        (exit code, its output); None: it did not end in time, and was killed.
    """
    merged = {**python_path(), **(env or {})}
    merged = {name: value for name, value in merged.items() if value}
    with ExitStack() as stack:
        out = stdout
        if isinstance(out, str):
            out = os.open(out, os.O_WRONLY)
            stack.callback(os.close, out)
        process = await asyncio.create_subprocess_exec(
            sys.executable, *program, *arguments,
            stdin=asyncio.subprocess.DEVNULL, stdout=out, stderr=asyncio.subprocess.PIPE,
            env=merged, start_new_session=True,
        )  # fmt: skip
    try:
        said, complained = await asyncio.wait_for(process.communicate(), _LIMIT_S)
    except TimeoutError:
        process.kill()
        await process.wait()
        return None, ""
    return process.returncode, (said or b"").decode(errors="replace") + complained.decode(
        errors="replace"
    )


async def broken_logs(stage: Stage) -> None:
    """The disk is full; the log's reader goes away; the log's reader stops reading."""
    for how in ("disk full", "reader gone", "reader stopped"):
        with ExitStack() as stack, tempfile.TemporaryDirectory(dir=stage.work) as directory:
            logs, readers = {}, []
            for role in ("coordinator", "verifier", "drafter"):
                if how == "disk full":
                    logs[role] = Path("/dev/full")
                    continue
                logs[role] = Path(directory) / role
                os.mkfifo(logs[role])
                reader = os.open(logs[role], os.O_RDONLY | os.O_NONBLOCK)
                readers.append(reader)
                os.set_blocking(reader, False)
                if how == "reader stopped":
                    _shrink(reader)
                    stack.callback(os.close, reader)
            async with stage.trial(f"log, {how}", logs=logs) as trial:
                if how == "reader gone":
                    for reader in readers:
                        os.close(reader)
                drafter = trial.fleet.services["drafter"]
                for _ in range(3):  # each time all three have something to say
                    if how != "disk full":
                        logs["drafter"] = drafter.log = stage.work / "drafter-again.log"
                    await drafter.kill()
                    await until(trial.watcher, lambda s: not is_linked(s))
                    await drafter.start()
                    await until(trial.watcher, is_linked)
                await trial.drafts_again()
                lives = {r: s.num_lives for r, s in trial.fleet.services.items() if r != "drafter"}
                ended = sum(number != 1 for number in lives.values())
        stage.say(f"log, {how}: services that ended", ended, 0)


def _shrink(pipe: int) -> None:
    import fcntl

    fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, 4096)


async def words_of_peers(stage: Stage) -> None:
    """A drafter whose every word is markup and escapes, shown by status."""
    async with stage.trial("a drafter to imitate", has_load=False) as trial:
        info = await honest_info(trial)
    info.identity.instance_id = info.identity.version = info.model.name = _ESCAPES
    async with (
        lying_drafter(info.SerializeToString(), b"") as (address, _),
        stage.trial("words of peers", also_drafters=(address,), has_load=False) as trial,
    ):
        await until(trial.watcher, lambda s: any(w.last_error for w in s.workers))
        code, shown = await command("status", "-a", trial.fleet.address, env={"FORCE_COLOR": "1"})
    wrong = [f"exit code {code}"] * (code != 0)
    wrong += ["an escape passed"] * ("\x1b]0" in shown or "\x1b[2J" in shown)
    stage.say("words of peers: faults of status", len(wrong), 0, detail="; ".join(wrong))


async def proxies(stage: Stage) -> None:
    """Proxy variables in the environment of the services and of the command line."""
    names = ("http_proxy", "https_proxy", "HTTP_PROXY", "grpc_proxy")
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(dict.fromkeys(names, _PROXY))
    try:
        async with stage.trial("proxies", has_load=False) as trial:
            code, said = await command("generate", "Hello", "--raw", "--max-tokens=4", "-a",
                                       trial.fleet.address)  # fmt: skip
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
    stage.say("proxies: generate on 127.0.0.1 fails", code != 0, 0, detail=said[-200:])


async def forked_client(stage: Stage) -> None:
    """The SDK after a fork: an error at once, not a wait."""
    async with stage.trial("forked client", has_load=False) as trial:
        code, said = await command(trial.fleet.address, program=("-c", _FORKED))
    stage.say("forked client: no PreconditionError within 5 s", code != 0, 0, detail=said[-200:])


async def refusals(stage: Stage) -> None:
    """No home, unwritable directories, a full disk, a terminal that is not UTF-8."""
    async with stage.trial("refusals", has_load=False) as trial:
        at = ("-a", trial.fleet.address)
        latin = {"PYTHONIOENCODING": "ascii", "LC_ALL": "C", "PYTHONUTF8": "0"}
        nowhere = {"HOME": "/proc/nope", "XDG_CACHE_HOME": "", "MINEDRAFT_HOME": ""}
        model = str(stage.target)
        attempts = {
            "target of an unknown user": command("serve", "--target=~nouser/x"),
            "log directory": command("serve", f"--target={model}", "--mode=ar",
                                     "--log-dir=/proc/nope", "--listen=127.0.0.1:0"),
            "not UTF-8": command("generate", "hello \u4f60", *at, "--raw", "--max-tokens=24",
                                 "--temperature=1", "--seed=3", env=latin),
            "generate into a full disk": command("generate", "hello", *at, "--raw",
                                                 "--max-tokens=4", stdout="/dev/full"),
            "status into a full disk": command("status", *at, stdout="/dev/full"),
            "help into a full disk": command("--help", stdout="/dev/full"),
            "timeline into nowhere": command("timeline", *at, "--out=/nonexistent/x.svg"),
            "fetch without a home": command("fetch", "smollm2", env=nowhere),
        }  # fmt: skip
        tracebacks = []
        for name, attempt in attempts.items():
            code, said = await attempt
            if code is None or "Traceback" in said or code < 0:
                tracebacks.append(f"{name}: {said.strip().splitlines()[-1:] or code}")
    stage.say("refusals that are tracebacks", len(tracebacks), 0,
              detail="; ".join(tracebacks)[:300])  # fmt: skip
