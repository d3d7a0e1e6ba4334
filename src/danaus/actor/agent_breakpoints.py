"""The breakpoints of one host, in its agent: who stands there, and who is attached to whom.

Owns ``Breakpoints``.  It passes on lines and text between a worker that stands at a breakpoint and
who looks at it, and keeps the last of what was said for who comes next.

Invariants:
    At most one is attached to a breakpoint; whoever is gone is attached no more.
    An actor whose looker leaves goes on standing there: only what it is told lets it go on.
    What nobody takes does not pile up here.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from dataclasses import dataclass

from danaus.actor import debug_messages as talk
from danaus.actor.agent_messages import FromAgent
from danaus.actor.agent_reports import AgentSession
from danaus.actor.agent_workers import WorkerTable
from danaus.actor.exits import exit_words
from danaus.wire.lifecycle import ProcessExited

_KEPT_CHARS = 65536
_PILE_BYTES = 4 << 20
_EXIT_LIMIT_S = 2.0
_HUNG_UP = "its process has hung up"
_DROPPED = "\n[output was dropped: it came faster than it was taken]\n"


@dataclass(eq=False)
class _At:
    """A breakpoint with an actor at it; it watches its worker as a session does."""

    number: int
    said: talk.StandAtBreakpoint
    since: float
    worker: AgentSession
    on_exit: Callable[[_At, str], None]
    looker: AgentSession | None = None
    text: str = ""
    asks: bool = False
    has_dropped: bool = False

    def tell(self, message: FromAgent) -> None:
        """Hear of the worker's end."""
        if isinstance(message, ProcessExited):
            self.on_exit(self, exit_words(message))


class Breakpoints:
    """All breakpoints of this host that an actor stands at.

    Args:
        workers: Of the host.
        note: Writes a line to the agent's log.
    """

    def __init__(self, workers: WorkerTable, note: Callable[[str], None]) -> None:
        self._workers, self._note = workers, note
        self._numbers = itertools.count(1)
        self._all: dict[int, _At] = {}
        self._watchers: set[AgentSession] = set()

    def obey(self, peer: AgentSession, message: talk.ToAgentOfBreakpoints) -> None:
        """Do what a worker at a breakpoint, or one who looks, asks for."""
        # A connection within a host, or a person's: one that is gone has nothing to come back for.
        peer.session.keep_for(0.0)
        match message:
            case talk.StandAtBreakpoint():
                self._stand(peer, message)
            case talk.DebuggerSays():
                self._say(peer, message)
            case talk.LeaveBreakpoint():
                self._leave(peer)
            case talk.WatchBreakpoints():
                self._watchers.add(peer)
                peer.tell(self._seen())
            case talk.AttachToBreakpoint(number, take):
                self._attach(peer, number, take=take)
            case talk.WriteToDebugger(number, line):
                self._write(peer, number, line)

    def forget(self, peer: AgentSession) -> None:
        """A session is over: of one who looked, or of a worker that has died."""
        self._watchers.discard(peer)
        for at in list(self._all.values()):
            if at.worker is peer:
                # Of the end of its process, and how, the kernel will tell in a moment.
                asyncio.get_running_loop().call_later(_EXIT_LIMIT_S, self._over, at, _HUNG_UP)
            elif at.looker is peer:
                at.looker = None
                self._tell_watchers()

    def _over(self, at: _At, why: str) -> None:
        """Nobody stands there any more; an end that is told of twice counts once."""
        if self._all.pop(at.number, None) is None:
            return
        worker = self._workers.get(at.said.process_id)
        if worker is not None:
            worker.watchers.discard(at)
        if at.looker is not None:
            at.looker.tell(talk.BreakpointOver(at.number, why))
        self._tell_watchers()

    def _stand(self, peer: AgentSession, message: talk.StandAtBreakpoint) -> None:
        worker = self._workers.get(message.process_id)
        if worker is None:
            return
        now = asyncio.get_running_loop().time()
        at = _At(next(self._numbers), message, now, peer, self._over)
        self._all[at.number] = at
        worker.watchers.add(at)
        who = f"{message.actor} in {message.process_id} stands at a breakpoint, {message.where}"
        self._note(who)
        told = f"{who}; attach to it with: danaus debug {worker.pid}"
        worker.owner_session.tell(talk.NoticeForPeople(told))
        self._tell_watchers()

    def _leave(self, peer: AgentSession) -> None:
        for at in list(self._all.values()):
            if at.worker is peer:
                self._over(at, "")

    def _say(self, peer: AgentSession, message: talk.DebuggerSays) -> None:
        at = next((at for at in self._all.values() if at.worker is peer), None)
        if at is None:
            return
        at.text, at.asks = (at.text + message.text)[-_KEPT_CHARS:], message.asks
        if at.looker is None:
            return
        if at.looker.session.kept_bytes > _PILE_BYTES:
            at.has_dropped = True
            if not message.asks:
                return
        text = (_DROPPED if at.has_dropped else "") + message.text
        at.has_dropped = False
        at.looker.tell(talk.DebuggerSaid(at.number, text, message.asks))

    def _attach(self, peer: AgentSession, number: int, *, take: bool) -> None:
        at = self._all.get(number)
        if at is None:
            peer.tell(talk.NotAttached(number, "nobody stands there any more"))
        elif at.looker is not None and at.looker is not peer and not take:
            peer.tell(talk.NotAttached(number, "somebody else is attached to it"))
        else:
            if at.looker is not None and at.looker is not peer:
                at.looker.tell(talk.BreakpointOver(number, "somebody else has attached to it"))
            at.looker, at.has_dropped = peer, False
            peer.tell(talk.Attached(number, at.text, at.asks))
            self._tell_watchers()

    def _write(self, peer: AgentSession, number: int, line: str) -> None:
        at = self._all.get(number)
        if at is not None and at.looker is peer:
            at.text, at.asks = f"{at.text}{line}\n"[-_KEPT_CHARS:], False
            at.worker.tell(talk.LineForDebugger(line))

    def _seen(self) -> talk.BreakpointsSeen:
        now = asyncio.get_running_loop().time()
        standing = (
            talk.Standing(
                at.number,
                at.said.process_id,
                at.said.actor,
                at.said.where,
                now - at.since,
                at.looker is not None,
            )
            for at in self._all.values()
        )
        return talk.BreakpointsSeen(tuple(standing))

    def _tell_watchers(self) -> None:
        for peer in self._watchers:
            peer.tell(self._seen())
