"""``danaus bench soak``: actors talk without pause while processes are killed and connections cut.

Owns the course of the soak: who is struck when, and what is left at the end.  Who talks is
``app.soak_talker``'s, what was promised ``app.soak_log``'s.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console

from danaus.actor.endpoints import Actor, concurrent_endpoint
from danaus.actor.failure import MeshFailure
from danaus.actor.future import Future
from danaus.actor.here import shutdown_context, this_host, this_proc
from danaus.actor.procfs import children_of
from danaus.actor.restart import Restart
from danaus.app.bench_soak_settings import SoakConfig
from danaus.app.campaign_watch import Usage, usage
from danaus.app.soak_log import Judgement, Life, judge, read
from danaus.app.soak_talker import Talker
from danaus.core.errors import ActorError, DanausError
from danaus.core.temporary_folder import TemporaryFolder

_SETTLE_LIMIT_S = 60.0
_AGAIN_S = 0.1
_GROWN_BYTES = 32 << 20
_MOST_SHOWN = 20
_FOREVER = Restart(intensity=1_000_000, period_s=1.0)


@dataclass
class Strikes:
    """What was done to the talkers."""

    num_kills: int = 0
    num_cuts: int = 0
    num_connections_cut: int = 0
    failures: list[str] = field(default_factory=list)


class Soak(Actor):
    """Owns the talkers and strikes them.

    Args:
        settings: How long, how many, how often.
        folder: Where the talkers write.
    """

    def __init__(self, settings: SoakConfig, folder: Path) -> None:
        self._settings = settings
        self._strikes = Strikes()
        self._procs = this_host().spawn_procs({"p": settings.processes}, name="talkers")
        self._talkers = self._procs.spawn("talker", Talker, folder, restart=_FOREVER)

    def __supervise__(self, failure: MeshFailure) -> bool:
        """Nothing comes here: the policy restarts whoever dies, and nobody fails otherwise."""
        self._strikes.failures.append(str(failure))
        return True

    @concurrent_endpoint
    async def run(self) -> Strikes:
        """Let them talk, strike them, and return what was done.

        Raises:
            ExceptionGroup: Somebody did not come to an end in time.
        """
        settings = self._settings
        await self._talkers.initialized
        until = time.monotonic() + settings.seconds
        async with asyncio.TaskGroup() as tasks:
            for rank in range(settings.processes):
                tasks.create_task(self._keep_talking(rank, until))
            striking = [
                tasks.create_task(self._strike(self._kill, settings.kill_every_s, until)),
                tasks.create_task(self._strike(self._cut, settings.cut_every_s, until)),
            ]
            await asyncio.wait(striking)
        await self._procs.stop()
        return self._strikes

    async def _keep_talking(self, rank: int, until: float) -> None:
        """Have a rank talk, whoever has its place; whoever begins last waits for all answers."""
        limit_s = self._settings.seconds + _SETTLE_LIMIT_S
        async with asyncio.timeout(limit_s):
            while True:
                left_s = max(0.0, until - time.monotonic())
                talker = self._talkers.slice(p=rank)
                try:
                    await talker.talk.call_one(self._talkers, self._settings.seed, left_s)
                    return
                except ActorError:
                    raise
                except DanausError:  # it was killed
                    await asyncio.sleep(_AGAIN_S)

    async def _strike(self, strike: Any, every_s: float, until: float) -> None:
        chance = random.Random(f"{self._settings.seed} {strike.__name__}")
        while True:
            await asyncio.sleep(chance.expovariate(1.0 / every_s))
            if time.monotonic() >= until:
                return
            with contextlib.suppress(DanausError):  # it is being started again, or was struck
                await strike(self._talkers.slice(p=chance.randrange(self._settings.processes)))

    async def _kill(self, talker: Talker) -> None:
        os.kill(await talker.pid.call_one(), signal.SIGKILL)
        self._strikes.num_kills += 1

    async def _cut(self, talker: Talker) -> None:
        self._strikes.num_connections_cut += await talker.cut.call_one()
        self._strikes.num_cuts += 1


def run_soak(settings: SoakConfig, *, console: Console) -> int:
    """Let actors talk while they are struck; say what came of it; return the exit code."""
    folder = TemporaryFolder()
    letters = folder.path / "letters"
    letters.mkdir()
    try:
        return _run(settings, letters, console)
    finally:
        folder.remove()


def _run(settings: SoakConfig, folder: Path, console: Console) -> int:
    this_host()
    shutdown_context()  # what a process needs once and keeps is there now
    at_first = usage(os.getpid())
    children = set(children_of(os.getpid()))
    soak = this_proc().spawn("soak", Soak, settings, folder)
    running = soak.run.call_one()
    settled = _used_after(running, settings.seconds / 3)
    limit_s = settings.seconds + 2 * _SETTLE_LIMIT_S
    found: list[str] = []
    strikes = Strikes()
    try:
        strikes = running.get(timeout=limit_s)
    except (DanausError, TimeoutError) as error:
        found.append(f"it came to no end: {error}")
    in_the_end = usage(os.getpid())
    shutdown_context()
    found += [f"process {pid} is left" for pid in set(children_of(os.getpid())) - children]
    found += _grown(settled, in_the_end)
    found += _left(at_first, usage(os.getpid()))
    judged = judge(_logs(folder))
    found += [*strikes.failures, *judged.violations]
    _tell(judged, strikes, found, console=console)
    if settings.out is not None:
        facts = {**asdict(judged), **asdict(strikes), "violations": found}
        settings.out.write_text(json.dumps(facts, indent=2) + "\n")
    return 1 if found else 0


def _used_after(running: Future[Strikes], seconds: float) -> Usage | None:
    """Return what this process uses once the soak has gone on for so long."""
    with contextlib.suppress(TimeoutError):
        running.exception(timeout=seconds)
    return usage(os.getpid())


def _grown(settled: Usage | None, in_the_end: Usage | None) -> Iterator[str]:
    """Return what this process uses more of, the longer the soak goes on."""
    if settled is None or in_the_end is None:
        return
    if in_the_end.rss_bytes > settled.rss_bytes + _GROWN_BYTES:
        grown = f"from {settled.rss_bytes >> 20} to {in_the_end.rss_bytes >> 20} MiB"
        yield f"memory of the controller grew {grown}"


def _left(before: Usage | None, after: Usage | None) -> Iterator[str]:
    """Return what this process has not given back."""
    if before is None or after is None:
        return
    if after.num_files > before.num_files:
        yield f"{after.num_files - before.num_files} descriptors are left"
    if after.num_threads > before.num_threads:
        yield f"{after.num_threads - before.num_threads} threads are left"


def _logs(folder: Path) -> dict[Life, Any]:
    logs = {}
    for path in folder.iterdir():
        rank, incarnation = map(int, path.name.split("."))
        logs[Life(rank, incarnation)] = read(path.read_text())
    return logs


def _tell(judged: Judgement, strikes: Strikes, found: list[str], *, console: Console) -> None:
    console.print(
        f"{judged.num_sent} letters of {judged.num_lives} lives: {judged.num_got} got, "
        f"{judged.num_answered} answered, of {judged.num_told} the sender was told that they may "
        f"be lost; {strikes.num_kills} processes killed, {strikes.num_connections_cut} connections "
        f"cut in {strikes.num_cuts} cuts",
        highlight=False,
    )
    for each in found[:_MOST_SHOWN]:
        console.print(f"  {each}", highlight=False)
    if len(found) > _MOST_SHOWN:
        console.print(f"  and {len(found) - _MOST_SHOWN} more", highlight=False)
    console.print("FAILED" if found else "every letter is accounted for, nothing is left")
