"""What a host agent reports by itself: heartbeats, positions, lines of logs."""

from __future__ import annotations

import asyncio
import contextlib

from danaus.actor import agent_messages as talk
from danaus.actor.agent_workers import WorkerTable
from danaus.core.errors import ChannelClosed
from danaus.wire.lifecycle import PositionsSeen, ProcessPosition
from danaus.wire.session import Session

TICK_S = 0.1
_LOOK_EVERY = 3  # ticks between two looks at the nursery
_BEAT_EVERY = 5


class AgentSession:
    """One session with the agent, of an owner, a worker or a watcher."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.watching: set[str] = set()
        self.greeted = False
        self.generation = 0

    def tell(self, message: talk.FromAgent) -> None:
        """Send; a session that is gone swallows it."""
        with contextlib.suppress(ChannelClosed):
            self.session.send([talk.FROM_AGENT.encode(message)])


class Reports:
    """Tells every session what it asked to be told, ten times a second.

    Args:
        workers: What is reported of.
        sessions: Who is told.
    """

    def __init__(self, workers: WorkerTable, sessions: set[AgentSession]) -> None:
        self._workers = workers
        self._sessions = sessions

    async def run(self) -> None:
        """Report until cancelled."""
        ticks = 0
        while True:
            await asyncio.sleep(TICK_S)
            ticks += 1
            self._tell_positions()
            for worker in self._workers:
                self._workers.tell_lines(worker)
            nursery = self._workers.nursery
            if nursery is not None and ticks % _LOOK_EVERY == 0:
                nursery.look()
                self._workers.adopt_strays()
            if ticks % _BEAT_EVERY == 0:
                self._beat()
                self._workers.count_oom_kills()

    def _beat(self) -> None:
        for peer in list(self._sessions):
            if peer.greeted:
                peer.tell(talk.Beat())

    def _tell_positions(self) -> None:
        now = asyncio.get_running_loop().time()
        seen: dict[str, ProcessPosition] = {}
        for worker in self._workers:
            at = worker.block.read()
            if worker.moved[0] != at.moves:
                worker.moved = (at.moves, now)
            seen[worker.spec.process_id] = ProcessPosition(
                process_id=worker.spec.process_id,
                step=at.step,
                phase=int(at.phase),
                collective=at.collective,
                waiting=at.phase.waits,
                still_s=now - worker.moved[1],
                for_siblings=at.for_siblings,
            )
        for peer in self._sessions:
            positions = tuple(seen[name] for name in sorted(peer.watching & seen.keys()))
            if positions:
                peer.tell(PositionsSeen(positions))
