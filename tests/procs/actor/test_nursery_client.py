"""A nursery that cannot be started: tried again, and in the end told to who asks for workers."""

from __future__ import annotations

import asyncio
import os

from danaus.actor import nursery_client
from danaus.actor.nursery_client import NurseryClient
from danaus.actor.nursery_messages import NurserySettings, WorkerSpec
from danaus.actor.restart import Restart

SPEC = WorkerSpec("host0/w/0#0", "w.1", 0, "host0", "/run", "/log", "/position", "unix:/s", "")


class Keeper:
    def __init__(self) -> None:
        self.notes: list[str] = []
        self.failed = asyncio.Event()
        self.why = ""

    def note(self, text: str) -> None:
        self.notes.append(text)

    def fork_failed(self, process_id: str, why: str) -> None:
        self.why = why
        self.failed.set()


def test_a_nursery_that_cannot_be_started_is_given_up_in_words(tmp_path, monkeypatch, no_leaks):
    monkeypatch.setattr(nursery_client, "_BUDGET", Restart(intensity=2))

    async def play() -> Keeper:
        keeper = Keeper()
        client = NurseryClient(
            NurserySettings((), (), "", 0),
            keeper,
            log_path=str(tmp_path / "no such folder" / "log"),
            environment=dict(os.environ),
            registered=lambda pid, started: None,
        )
        client.start()
        client.fork(SPEC)
        async with asyncio.timeout(10.0):
            await keeper.failed.wait()
        client.close()
        return keeper

    keeper = asyncio.run(play())
    assert keeper.why.startswith("the nursery keeps dying: 3 failures in 60 s, 2 allowed")
    assert len([note for note in keeper.notes if "cannot be started" in note]) == 3
