"""An agent or a nursery that dies in the middle of a message (P-1, P-4, P-7).

Real nurseries; this process plays the agent, or is one's client.  Nurseries that die at a certain
byte do so by a module that their interpreter begins with.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from tests.procs.elsewhere import ROOT

from danaus.actor import boot
from danaus.actor import nursery_messages as talk
from danaus.actor.nursery import NOT_BEGUN
from danaus.actor.nursery_client import NurseryClient
from danaus.actor.nursery_stream import READ_BYTES, Incoming, framed
from danaus.core.lifeline import open_lifeline
from danaus.testing.hosts import Watched, wait_for_state
from danaus.wire.position import PositionBlock
from danaus.wire.secret import Secret

LIMIT_S = 20.0

# Once: it dies after so many bytes of a report, which stand for any torn message.
TORN = """
import os, pathlib, signal
from danaus.actor import nursery
from danaus.actor.nursery_messages import Forked, encode
mark = pathlib.Path({mark!r})
say = nursery.Nursery._say

def torn(self, message):
    if isinstance(message, Forked) and not mark.exists():
        mark.write_text(str(message.pid))
        self._agent.sendall(nursery.framed(encode(message))[:{num_bytes}])
        os.kill(os.getpid(), signal.SIGKILL)
    say(self, message)

nursery.Nursery._say = torn
"""

# It makes no workers, and says so.
REFUSES = """
from danaus.actor import nursery
from danaus.actor.nursery_messages import ForkFailed
nursery.Nursery._make = lambda self, spec: self._say(ForkFailed(spec.process_id, "not today"))
"""


class Keeper:
    """Is told what a client hears."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.made: list[talk.Forked] = []
        self.failed: dict[str, str] = {}
        self.ended: list[talk.Reaped] = []
        self._news = asyncio.Condition()
        self._tasks: set[asyncio.Task[None]] = set()

    def note(self, text: str) -> None:
        self.notes.append(text)

    def forked(self, message: talk.Forked) -> None:
        self.made.append(message)
        self._tell()

    def fork_failed(self, process_id: str, why: str) -> None:
        self.failed[process_id] = why
        self._tell()

    def reaped(self, message: talk.Reaped) -> None:
        self.ended.append(message)
        self._tell()

    def _tell(self) -> None:
        async def tell() -> None:
            async with self._news:
                self._news.notify_all()

        self._tasks.add(asyncio.get_running_loop().create_task(tell()))

    async def until(self, holds) -> None:
        async with asyncio.timeout(LIMIT_S), self._news:
            await self._news.wait_for(holds)


class Place:
    """The folder of a nursery's workers, and the end of all that lives there."""

    def __init__(self, folder: Path, spawns: bool) -> None:
        self.folder = folder
        self._read, self._write = open_lifeline()
        Secret.ensure(folder / "secret")
        self.settings = talk.NurserySettings(
            (), tuple(sys.path), str(folder / "secret"), self._read, spawns
        )

    def spec(self, number: int, env: dict[str, str] | None = None) -> talk.WorkerSpec:
        path = str(self.folder / f"{number}.position")
        PositionBlock.create(path).close()
        return talk.WorkerSpec(
            process_id=f"host0/w/{number}#0",
            mesh_id="w.1",
            rank=number,
            host="host0",
            run_dir=str(self.folder),
            log_path=str(self.folder / f"{number}.log"),
            position_path=path,
            bind=f"unix:{self.folder}/w{number}",
            agent_address=f"unix:{self.folder}/agent",
            env=env or {},
        )

    def environment(self, begins_with: str = "") -> dict[str, str]:
        (self.folder / "sitecustomize.py").write_text(begins_with)
        path = os.pathsep.join((str(self.folder), str(ROOT / "src")))
        return {**os.environ, "PYTHONPATH": path}

    def client(self, keeper: Keeper, begins_with: str = "") -> NurseryClient:
        return NurseryClient(
            self.settings,
            keeper,  # type: ignore[arg-type]
            log_path=str(self.folder / "nursery.log"),
            environment=self.environment(begins_with),
            registered=lambda pid, started: None,
        )

    def close(self) -> None:
        for end in (self._read, self._write):
            os.close(end)


@pytest.fixture(params=["forks", "spawns"])
def place(request, tmp_path):
    made = Place(tmp_path, request.param == "spawns")
    yield made
    made.close()


class Agent:
    """This process as an agent that talks to a nursery byte by byte."""

    def __init__(self, place: Place) -> None:
        self.ours, theirs = socket.socketpair()
        self.ours.settimeout(LIMIT_S)
        self._incoming = Incoming("the nursery")
        self._heard: list[bytes] = []
        with theirs, open(place.folder / "nursery.log", "ab") as log:
            self.nursery = subprocess.Popen(
                boot.command("danaus.actor.nursery", str(theirs.fileno())),
                pass_fds=(theirs.fileno(), place.settings.lifeline_fd),
                env=place.environment(),
                stdout=log,
                stderr=log,
            )

    def say(self, message: talk.ToNursery, num_bytes: int | None = None) -> None:
        self.ours.sendall(framed(talk.encode(message))[:num_bytes])

    def hear(self) -> talk.FromNursery:
        while not self._heard:
            data = self.ours.recv(READ_BYTES)
            assert data, "the nursery has ended"
            self._heard += self._incoming.filled(data)
        return talk.from_nursery.decode(self._heard.pop(0))


@pytest.mark.parametrize("num_bytes", [0, 3, 100])
def test_an_agent_that_dies_in_the_middle_of_a_request_takes_nursery_and_workers_with_it(
    place, num_bytes
):
    """The lifeline stays open here: they know it from their sockets alone."""
    agent = Agent(place)
    with agent.nursery, agent.ours:
        agent.say(place.settings)
        assert isinstance(agent.hear(), talk.NurseryReady)
        agent.say(place.spec(0))
        told = agent.hear()
        assert isinstance(told, talk.Forked)
        worker = Watched(told.pid)
        agent.say(place.spec(1), num_bytes)
        agent.ours.close()
        assert agent.nursery.wait(LIMIT_S) == 0
        assert worker.ends_within(LIMIT_S)
        worker.close()
    assert not (place.folder / "1.log").exists()


@pytest.mark.parametrize("num_bytes", [0, 3, 12])
def test_a_nursery_that_dies_in_the_middle_of_a_report_leaves_no_second_worker(place, num_bytes):
    mark = place.folder / "mark"

    async def play() -> Keeper:
        keeper = Keeper()
        client = place.client(keeper, TORN.format(mark=str(mark), num_bytes=num_bytes))
        client.start()
        client.fork(place.spec(0))
        await keeper.until(lambda: keeper.made)
        (made,) = keeper.made
        assert made.pid != int(mark.read_text())
        with contextlib.suppress(ProcessLookupError):  # gone already
            first = Watched(int(mark.read_text()))
            assert await asyncio.to_thread(first.ends_within, LIMIT_S)
            first.close()
        second = Watched(made.pid)
        second.signal(signal.SIGKILL)
        await keeper.until(lambda: keeper.ended)
        second.close()
        client.close()
        return keeper

    keeper = asyncio.run(play())
    assert [each.pid for each in keeper.ended] == [keeper.made[0].pid]
    assert keeper.failed == {}
    assert any("ended (-9)" in note for note in keeper.notes)
    log = place.folder / ("nursery.log" if place.settings.spawns else "0.log")
    assert log.read_text().count(NOT_BEGUN) == 1


@pytest.mark.parametrize("place", ["forks"], indirect=True)
def test_requests_that_a_nursery_does_not_take_hold_up_nobody(place):
    many = 60

    async def play() -> Keeper:
        keeper = Keeper()
        client = place.client(keeper, REFUSES)
        client.start()
        client.fork(place.spec(many))
        await keeper.until(lambda: keeper.failed)
        os.kill(client.pid, signal.SIGSTOP)
        assert wait_for_state(client.pid, "T")
        for number in range(many):  # more than any socket holds
            client.fork(place.spec(number, {"LARGE": "x" * 200_000}))
        assert len(keeper.failed) == 1
        os.kill(client.pid, signal.SIGCONT)
        await keeper.until(lambda: len(keeper.failed) == many + 1)
        client.close()
        return keeper

    assert set(asyncio.run(play()).failed.values()) == {"not today"}
