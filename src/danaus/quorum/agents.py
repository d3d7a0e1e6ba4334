"""The quorum service's sessions with host agents: who lives there, how far they are, who must die.

Owns one session per agent address, opened again whenever it is lost (the agent may have been
restarted), and what was asked of each agent, which is asked again then.  What an answer means is
the service's business.

Invariants:
    P-1: a death is told by the host agent, which has it from the kernel.
    Q-7: a kill that was asked for stays asked for until the process is gone.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable

from danaus.core.errors import (
    AddressRefused,
    ChannelClosed,
    DanausError,
    FrameDamaged,
    HandshakeRefused,
)
from danaus.quorum.progress import Observation, Quiet
from danaus.quorum.status import Progress
from danaus.wire.address import Address
from danaus.wire.lifecycle import (
    FROM_AGENT,
    TO_AGENT,
    KillProcess,
    PositionsSeen,
    ProcessExited,
    ProcessPosition,
    ToAgent,
    WatchProcess,
)
from danaus.wire.looking import look_for
from danaus.wire.owned_tasks import OwnedTasks
from danaus.wire.position import Phase
from danaus.wire.secret import Secret
from danaus.wire.session import Session, open_session

OPEN_LIMIT_S = 5.0
LOST_LIMIT_S = 5.0
PAUSE_S = 0.2
_LOOK_S = 1.0
_log = logging.getLogger("danaus.quorum")

OnExit = Callable[[str, ProcessExited], None]
OnPositions = Callable[[str, PositionsSeen], None]


class HostAgents:
    """All host agents that the service watches.

    Args:
        secret: The job's secret.
        on_exit: Called with an agent's address and a death that it reports.
        on_positions: Called with an agent's address and the positions that it read.
        on_gone: Called with the address of an agent that has ended, as its machine says.
    """

    def __init__(
        self,
        secret: Secret,
        *,
        on_exit: OnExit,
        on_positions: OnPositions,
        on_gone: Callable[[str], None],
    ) -> None:
        self._secret = secret
        self._on_exit, self._on_positions, self._on_gone = on_exit, on_positions, on_gone
        self._tasks = OwnedTasks("host agents")
        self._agents: dict[str, _Agent] = {}

    def watch(self, address: str, process_id: str) -> None:
        """Hear of a process's positions and its end; asking again looks at once."""
        self._agent(address).ask(process_id, WatchProcess(process_id))

    def kill(self, address: str, process_id: str, *, reason: str, save_stacks: bool) -> None:
        """Have a process killed, now or as soon as its agent is reached."""
        self._agent(address).ask(process_id, KillProcess(process_id, reason, save_stacks))

    def pardon(self, address: str, process_id: str) -> None:
        """Take back a kill that the agent was not yet told of."""
        asked = self._agent(address).asked.get(process_id, [])
        asked[:] = [each for each in asked if not isinstance(each, KillProcess)]

    def is_gone(self, address: str) -> bool:
        """Tell whether an agent is known to have ended, and none has come in its place."""
        agent = self._agents.get(address)
        return agent is not None and agent.is_gone

    async def close(self) -> None:
        """Leave all agents."""
        await self._tasks.close()

    def _agent(self, address: str) -> _Agent:
        agent = self._agents.get(address)
        if agent is None:
            agent = self._agents[address] = _Agent(address)
            self._tasks.start(self._follow(agent), f"watching {address}")
        return agent

    async def _follow(self, agent: _Agent) -> None:
        """Keep a session with one agent for as long as the service lives."""
        while True:
            try:
                session = await self._open(agent.address)
            except DanausError as error:
                # Who is refused once will be: the secrets differ, and the agent's word is missed.
                refused = isinstance(error, HandshakeRefused) and not agent.is_refused
                agent.is_refused = agent.is_refused or refused
                level = logging.WARNING if refused else logging.INFO
                _log.log(level, "host agent %s is not reached: %s", agent.address, error)
                await self._look(agent)
                await asyncio.sleep(PAUSE_S)
                continue
            watch = self._tasks.start(_end_if_silent(session), f"silence of {agent.address}")
            session.on_disconnect = functools.partial(self._broke, agent, session)
            try:
                agent.begin(session)
                await self._listen(agent, session)
            except ChannelClosed as closed:
                _log.info("%s", closed)
            finally:
                watch.cancel()
                agent.session = None
                await session.close()
            await asyncio.sleep(PAUSE_S)

    def _broke(self, agent: _Agent, session: Session, _why: str) -> None:
        self._tasks.start(self._look_often(agent, session), f"looks for {agent.address}")

    async def _look_often(self, agent: _Agent, session: Session) -> None:
        """Look for as long as a session has no connection: its agent may be about to end."""
        while not session.is_connected and not agent.is_gone:
            await self._look(agent)
            if session.is_closed:
                return
            await asyncio.sleep(PAUSE_S)

    async def _look(self, agent: _Agent) -> None:
        """Hear at once of an agent that has ended: its workers ended with it."""
        if not agent.is_gone and await look_for(Address.parse(agent.address)) == "gone":
            agent.is_gone = True
            self._on_gone(agent.address)

    async def _open(self, address: str) -> Session:
        return await open_session(
            Address.parse(address),
            self._secret,
            lost_limit_s=LOST_LIMIT_S,
            open_limit_s=OPEN_LIMIT_S,
        )

    async def _listen(self, agent: _Agent, session: Session) -> None:
        async for parts in session:
            try:
                message = FROM_AGENT.decode(parts[0], session.peer)
            except FrameDamaged:
                continue  # an agent has more to say to others than to those who watch
            if isinstance(message, ProcessExited):
                agent.asked.pop(message.process_id, None)
                self._on_exit(agent.address, message)
            else:
                self._on_positions(agent.address, message)


class _Agent:
    """One agent: the session with it, if there is one, and what was asked, by process."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.session: Session | None = None
        self.is_gone = False
        self.is_refused = False
        self.asked: dict[str, list[ToAgent]] = {}

    def ask(self, process_id: str, message: ToAgent) -> None:
        asked = self.asked.setdefault(process_id, [])
        if message not in asked:
            asked.append(message)
        if self.session is not None and not self.session.is_closed:
            self.session.send([TO_AGENT.encode(message)])

    def begin(self, session: Session) -> None:
        self.session, self.is_gone, self.is_refused = session, False, False
        for messages in self.asked.values():
            for message in messages:
                session.send([TO_AGENT.encode(message)])


async def _end_if_silent(session: Session) -> None:
    """End a session whose other end acknowledges nothing: another may come through (a cut)."""
    while True:
        await asyncio.sleep(_LOOK_S)
        if session.unanswered_s >= LOST_LIMIT_S:
            session.end(f"no answer for {session.unanswered_s:.1f} s")
            return


def is_address(text: str) -> bool:
    """Tell whether a seat names a host agent that can be dialled."""
    try:
        return bool(text) and bool(Address.parse(text))
    except AddressRefused:
        return False


def how_it_ended(exited: ProcessExited) -> str:
    """Return a death in words."""
    if exited.signal:
        how = f"ended by {exited.signal}"
    elif exited.exit_code is not None:
        how = f"exited with code {exited.exit_code}"
    else:
        how = "is not running"
    return f"{how} ({exited.reason})" if exited.reason else how


def progress_of(seen: ProcessPosition) -> Progress:
    """Return a position as a person reads it."""
    return Progress(max(0, seen.step), _phase_name(seen.phase).lower())


def _phase_name(number: int) -> str:
    try:
        return Phase(number).name
    except ValueError:
        return str(number)


def observation_of(seen: ProcessPosition, quiet: Quiet | None = None) -> Observation:
    """Return a position as the judge of progress looks at it.

    Args:
        seen: The position.
        quiet: How long nothing has come from the process.
    """
    apart = seen.phase == Phase.LEARN and quiet is not None and not quiet.awaited
    if quiet is not None and seen.phase != Phase.JOIN:
        # Only who joins waits for an answer; who is done says nothing any more.
        quiet = None if seen.phase == Phase.DONE else Quiet(quiet.silent_s)
    return Observation(
        position=(seen.step, seen.phase, seen.collective),
        still_s=seen.still_s,
        waiting=(seen.waiting and not apart) or seen.phase == Phase.DONE,
        starting=seen.phase == Phase.START,
        apart=apart,
        together=seen.phase in (Phase.REDUCE, Phase.VOTE),
        for_siblings=seen.for_siblings,
        quiet=quiet,
        where=f"step {seen.step}, {_phase_name(seen.phase)}, collective {seen.collective}",
    )
