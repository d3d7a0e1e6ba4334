"""One process's connection to one host agent: asking for processes, hearing of their ends.

Invariant P-2: a lost connection is looked into at once, and an agent is dead if its machine says
that nobody listens there any more; one that is silent for ``heartbeat_limit_s`` is dead once a
second connection gets no answer either.  Where everybody is silent it is this process that is cut
off, and nobody is given up.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from danaus.actor import agent_messages as talk
from danaus.actor.debug_messages import NoticeForPeople
from danaus.actor.identity import HostRef
from danaus.core.errors import ChannelClosed, DanausError, DeadlinePassed
from danaus.wire.address import Address
from danaus.wire.lifecycle import ProcessExited
from danaus.wire.looking import look_for
from danaus.wire.owned_tasks import OwnedTasks
from danaus.wire.secret import Secret
from danaus.wire.session import Session, open_session

RENEW_AFTER_S = 5.0
"""An agent that was lost is given up for so long; then its next use tries it again."""
_PROBE_LIMIT_S = 1.0
_OPEN_LIMIT_S = 5.0
_LOOKS_PER_LIMIT = 10
_LOOK_AGAIN_S = 0.2
_TIMED_OUT = "no answer"
_NO_ANSWER = {
    "there": "it accepts connections and does not answer",
    "gone": "nobody listens there any more",
    "unknown": "its machine does not answer",
}


class AgentListener(Protocol):
    """The process, as it hears of an agent's news."""

    def process_started(self, message: talk.ProcessStarted, host: HostRef) -> None:
        """A worker was forked."""

    def process_ready(self, message: talk.ProcessReady, host: HostRef) -> None:
        """A worker listens."""

    def process_exited(self, message: ProcessExited, host: HostRef) -> None:
        """A worker is gone."""

    def log_lines(self, message: talk.LogLines, host: HostRef) -> None:
        """A worker wrote."""

    def host_lost(self, host: HostRef, why: str) -> None:
        """The agent is gone, and with it every worker of its host."""

    def processes_owned(self, message: talk.Owned, host: HostRef) -> None:
        """The agent has said which processes of a controller live there."""

    def owner_replaced(self, message: talk.OwnerReplaced, host: HostRef) -> None:
        """A later controller has taken this one's place."""

    def host_leaving(self, host: HostRef, why: str) -> None:
        """The agent was asked to end, and waits for its workers to end first."""

    def stop_asked(self, reason: str) -> None:
        """The agent wants this process, a worker of its, to end."""

    def notice_for_people(self, text: str) -> None:
        """Whoever sits before this program should know."""


@dataclass(frozen=True)
class Patience:
    """When the host agents of a job are given up.

    Args:
        heartbeat_limit_s: Silence of so many seconds is looked into.
        lost_limit_s: A session may be without a connection for so many seconds.
        cut_off: Tells whether no host of the job can be reached from here; None: it cannot be.
    """

    heartbeat_limit_s: float
    lost_limit_s: float = 0.0
    cut_off: Callable[[], Awaitable[bool]] | None = None


class AgentLink:
    """Keeps a session with one agent; on the connections' loop.

    Args:
        host: The host.
        secret: The job's secret.
        hello: Who opens the session.
        patience: How long silence may last, and who tells that it is everybody's.
        listener: Whom to tell.
        tasks: Owner of the link's tasks.
    """

    def __init__(
        self,
        host: HostRef,
        secret: Secret,
        hello: talk.Hello,
        *,
        patience: Patience,
        listener: AgentListener,
        tasks: OwnedTasks,
    ) -> None:
        self.host = host
        self.lost_why = ""
        self._secret = secret
        self._hello = talk.HELLO.encode(hello)
        self._patience, self._limit_s = patience, patience.heartbeat_limit_s
        self._listener = listener
        self._tasks = tasks
        self._loop = asyncio.get_running_loop()
        self._session: Session | None = None
        self._outbox: list[talk.ToAgent] = [talk.Greet(hello.generation)]
        self._heard = self._loop.time()
        self._closing = False
        self._lost_at = 0.0
        tasks.start(self._keep(), f"link to {host.name}")

    @property
    def may_come_up_again(self) -> bool:
        """Tell whether a lost agent may be within reach by now."""
        return bool(self.lost_why) and self._loop.time() - self._lost_at >= RENEW_AFTER_S

    def say(self, message: talk.ToAgent) -> None:
        """Send, now or when the session is open."""
        if self._session is None:
            self._outbox.append(message)
            return
        with contextlib.suppress(ChannelClosed):
            self._session.send([talk.TO_AGENT.encode(message)])

    def lose(self, why: str) -> None:
        """Take the agent for dead."""
        if self.lost_why or self._closing:
            return
        self.lost_why, self._lost_at = why, self._loop.time()
        if self._session is not None:
            self._session.end(why)
        self._listener.host_lost(self.host, why)

    async def close(self) -> None:
        """Leave without a word about the host."""
        self._closing = True
        if self._session is not None:
            await self._session.close()

    async def _keep(self) -> None:
        try:
            self._session = await open_session(
                Address.parse(self.host.agent_address),
                self._secret,
                self._hello,
                lost_limit_s=max(self._limit_s, self._patience.lost_limit_s),
                open_limit_s=_OPEN_LIMIT_S,
            )
        except DanausError as error:
            self.lose(f"its agent cannot be reached: {error}")
            return
        session = self._session
        session.on_message = self._arrived
        session.on_disconnect = lambda _: self._heard_nothing_new()
        outbox, self._outbox = self._outbox, []
        for message in outbox:
            self.say(message)
        watch = self._tasks.start(self._watch_silence(), f"heartbeats of {self.host.name}")
        try:
            reason = await session.closed
            self.lose(f"the connection to its agent ended: {reason.why}")
        finally:
            watch.cancel()

    def _heard_nothing_new(self) -> None:
        """A connection broke: look at once instead of waiting for silence to grow long."""
        self._tasks.start(self._look(), "a look")

    async def _look(self) -> None:
        """Look for as long as there is no connection: the agent may be about to end."""
        session, address = self._session, Address.parse(self.host.agent_address)
        while session is not None and not (session.is_connected or session.is_closed):
            if await look_for(address) == "gone":
                self.lose("its connection broke, and nobody listens there any more")
            await asyncio.sleep(_LOOK_AGAIN_S)

    async def _watch_silence(self) -> None:
        self._heard = self._loop.time()
        while True:
            await asyncio.sleep(self._limit_s / _LOOKS_PER_LIMIT)
            silent_s = self._loop.time() - self._heard
            if silent_s >= self._limit_s:
                await self._look_into(silent_s)

    async def _look_into(self, silent_s: float) -> None:
        """Probe an agent that is silent: an answer means that only the connection is stuck."""
        address = Address.parse(self.host.agent_address)
        why_not, found = await asyncio.gather(self._probe(), look_for(address, _PROBE_LIMIT_S))
        if not why_not:
            self._heard = self._loop.time()
            if self._session is not None:
                self._session.drop_connection(f"nothing came over it for {silent_s:.1f} s")
        elif self._patience.cut_off is None or not await self._patience.cut_off():
            words = _NO_ANSWER[found] if why_not == _TIMED_OUT else why_not
            self.lose(f"it was silent for {silent_s:.1f} s and a probe failed: {words}")

    async def _probe(self) -> str:
        """Ask on a second connection; return why there was no answer (P-2)."""
        try:
            async with asyncio.timeout(_PROBE_LIMIT_S):
                session = await open_session(
                    Address.parse(self.host.agent_address),
                    self._secret,
                    self._hello,
                    open_limit_s=_PROBE_LIMIT_S,
                )
                try:
                    session.send([talk.TO_AGENT.encode(talk.Greet())])
                    await session.receive()
                finally:
                    session.end("a probe", clean=True)
        except (DeadlinePassed, TimeoutError):
            return _TIMED_OUT
        except DanausError as error:
            return str(error)
        return ""

    def _arrived(self, parts: list[bytearray]) -> None:
        self._heard = self._loop.time()
        message = talk.FROM_AGENT.decode(parts[0], self.host.name)
        match message:
            case talk.ProcessStarted():
                self._listener.process_started(message, self.host)
            case talk.ProcessReady():
                self._listener.process_ready(message, self.host)
            case ProcessExited():
                self._listener.process_exited(message, self.host)
            case talk.LogLines():
                self._listener.log_lines(message, self.host)
            case talk.HostLeaving(why):
                self._listener.host_leaving(self.host, why)
            case talk.Owned():
                self._listener.processes_owned(message, self.host)
            case talk.OwnerReplaced():
                self._listener.owner_replaced(message, self.host)
            case talk.StopWorker(reason):
                self._listener.stop_asked(reason)
            case NoticeForPeople(text):
                self._listener.notice_for_people(text)
            case _:
                pass  # a welcome, beats, positions: that something came is all they say here
