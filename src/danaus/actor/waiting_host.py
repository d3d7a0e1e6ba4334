"""A host that waits to be joined by a controller that holds the same secret.

Owns the shell around ``waiting_state``: sessions with controllers, looking for one that is gone,
and the person at the host.  The agent that works for a job is ``waiting_work``'s.

Invariants:
    P-4: with this process the agent that it started ends, and with that all workers: by lifelines.
    Nothing is obeyed before the peer has proven that it holds the secret (W-2).
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import signal
import socket
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from danaus.actor.identity import check_name
from danaus.actor.spelled_address import address_of
from danaus.actor.waiting_messages import (
    FROM_HOST,
    TO_HOST,
    AgentEnded,
    FromHost,
    HostJoined,
    HostLeft,
    HostRefused,
    JoinHost,
    KillAgent,
    LeaveHost,
    ToHost,
)
from danaus.actor.waiting_state import (
    AgentGone,
    Application,
    BeginWork,
    ControllerAway,
    ControllerBack,
    ControllerLookedFor,
    EndWork,
    Event,
    Instruction,
    JoinAsked,
    KeepWork,
    LeaveAsked,
    LetWorkEnd,
    LookForController,
    Say,
    TimePassed,
    TurnAway,
    WaitingMachine,
    WakeAt,
)
from danaus.actor.waiting_work import HostPlaces, HostWork
from danaus.core.errors import ChannelClosed, ConfigError, DanausError
from danaus.core.temporary_folder import TemporaryFolder
from danaus.wire.address import Address
from danaus.wire.looking import look_for
from danaus.wire.owned_tasks import OwnedTasks
from danaus.wire.secret import Secret
from danaus.wire.session import Session, serve_sessions

KEPT_S = 86_400.0
"""How long a session between host and controller outlives its connection: the host decides."""
_SOCKET_FOLDER_BYTES = 60


@dataclass(eq=False)
class _Visitor:
    """A controller's session, and what it asked for."""

    session: Session
    order: JoinHost | None = None


class WaitingHost:
    """Wait to be joined, work, wait again.

    Args:
        places: Where the host's things are.
        say: Shows a line to the person at the host.
        done: Called when a job that it worked for is over here.
    """

    def __init__(
        self,
        places: HostPlaces,
        say: Callable[[str], None],
        *,
        done: Callable[[], None] = lambda: None,
    ) -> None:
        self._places, self._say, self._done = places, say, done
        self._has_worked = False
        self._machine = WaitingMachine()
        self._events: deque[Event] = deque()
        self._busy = False
        self._numbers = itertools.count(1)
        self._visitors: dict[int, _Visitor] = {}
        self._tasks = OwnedTasks(f"host {places.name}")
        self._work = HostWork(places, self._agent_gone)
        self._timer: asyncio.TimerHandle | None = None
        self._leaving: asyncio.Event | None = None

    def leave(self, ending: asyncio.Event) -> None:
        """Set ``ending`` once what works here has finished its step; asked again, at once."""
        if self._leaving is not None or not self._work.ask_to_end():
            ending.set()
            return
        self._leaving = ending
        self._say("asked to end (SIGTERM): what works here finishes its step; again: at once")

    async def run(self, ending: asyncio.Event, listening: Callable[[Address], None]) -> None:
        """Serve until ``ending`` is set; nothing that was started is left then.

        Raises:
            AddressRefused: The address cannot be bound.
        """
        secret = Secret.load(self._places.secret_path)
        server = await serve_sessions(
            self._places.listen, secret, self._on_session, lost_limit_s=KEPT_S
        )
        try:
            listening(server.address)
            await ending.wait()
        finally:
            if self._timer is not None:
                self._timer.cancel()
            await self._tasks.close()
            await self._work.end()
            await server.close()

    # -- sessions ------------------------------------------------------------------------------

    async def _on_session(self, session: Session) -> None:
        number = next(self._numbers)
        visitor = self._visitors[number] = _Visitor(session)
        session.on_disconnect = lambda _why: self._feed(ControllerAway(number))
        session.on_reconnect = lambda: self._feed(ControllerBack(number))
        try:
            async for parts in session:
                self._hear(number, visitor, TO_HOST.decode(parts[0], session.peer))
        except ChannelClosed:
            pass
        except DanausError as error:
            self._say(f"session of {session.peer} ended: {error}")
        finally:
            del self._visitors[number]
            self._feed(ControllerAway(number))
            await session.close()

    def _hear(self, number: int, visitor: _Visitor, message: ToHost) -> None:
        match message:
            case JoinHost() if self._leaving is not None:
                self._tell(number, HostRefused("it leaves: it was asked to end"))
            case JoinHost() as order:
                visitor.order = order
                self._feed(JoinAsked(_application(number, order)))
            case LeaveHost(reason):
                self._feed(LeaveAsked(number, reason))
            case KillAgent(agent_pid, reason):
                if self._machine.works_for(number) and self._work.kill(agent_pid):
                    self._say(f"killed the agent: {reason}")

    def _tell(self, number: int, message: FromHost) -> None:
        visitor = self._visitors.get(number)
        if visitor is not None:
            with contextlib.suppress(ChannelClosed):
                visitor.session.send([FROM_HOST.encode(message)])

    def _agent_gone(self, address: str, how: str) -> None:
        for number in list(self._visitors):
            if self._machine.works_for(number):
                self._tell(number, AgentEnded(address, how))
        self._feed(AgentGone())
        if self._leaving is not None:
            self._leaving.set()

    # -- the machine ---------------------------------------------------------------------------

    def _feed(self, event: Event) -> None:
        """Hand an event to the machine, and those that follow from its instructions after it."""
        self._events.append(event)
        if self._busy:
            return
        self._busy = True
        try:
            while self._events:
                now = asyncio.get_running_loop().time()
                for instruction in self._machine.handle(self._events.popleft(), now):
                    self._carry_out(instruction, now)
        finally:
            self._busy = False

    def _carry_out(self, instruction: Instruction, now: float) -> None:
        match instruction:
            case Say(text):
                self._say(text)
            case BeginWork(session):
                self._tasks.start(self._begin(session, self._work.begin), "starting an agent")
            case KeepWork(session):
                self._tasks.start(self._begin(session, self._work.keep), "keeping an agent")
            case EndWork(_, session):
                self._tasks.start(self._end(session), "ending an agent")
            case TurnAway(session, why):
                self._tell(session, HostRefused(why))
            case LookForController(session, controller):
                looking = self._look_for(session, Address.parse(controller))
                self._tasks.start(looking, "looking for the controller")
            case LetWorkEnd():
                self._tasks.start(self._let_work_end(), "letting the work end")
            case WakeAt(at):
                self._wake_in(max(0.0, at - now))

    def _wake_in(self, delay_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(delay_s, self._feed, TimePassed())

    async def _begin(self, number: int, work: Callable[[JoinHost], Awaitable[HostJoined]]) -> None:
        visitor = self._visitors.get(number)
        if visitor is None or visitor.order is None:
            return
        for other, each in list(self._visitors.items()):
            if other != number and each.order is not None and each.order.job == visitor.order.job:
                each.session.end("a newer session took its place", clean=True)
        try:
            self._tell(number, await work(visitor.order))
            self._has_worked = True
        except (DanausError, OSError) as error:
            self._tell(number, HostRefused(str(error)))
            self._feed(LeaveAsked(number, f"it cannot work here: {error}"))

    async def _end(self, number: int) -> None:
        await self._work.end()
        self._tell(number, HostLeft())
        for each in list(self._visitors.values()):
            if not each.session.is_connected:  # a controller that is gone for good
                each.session.end("its job is over", clean=True)
        if self._has_worked:
            self._done()

    async def _look_for(self, number: int, controller: Address) -> None:
        self._feed(ControllerLookedFor(number, await look_for(controller)))

    async def _let_work_end(self) -> None:
        with contextlib.suppress(DanausError):
            await self._work.let_end()


def _application(number: int, order: JoinHost) -> Application:
    return Application(
        number,
        order.job,
        order.who,
        order.controller,
        detached=order.detached,
        alone_limit_s=order.alone_limit_s,
        adopt=order.adopt,
    )


@contextlib.contextmanager
def places_of(
    address: Address | str, secret: Path | str, *, run_dir: Path | str | None, name: str
) -> Iterator[HostPlaces]:
    """Make the folders of a waiting host; temporary ones are removed afterwards.

    Args:
        address: Where it listens.
        secret: File of the hosts' secret.
        run_dir: Folder for its own things, on its own disk; None: a temporary one.
        name: Of the host, for people; empty: the machine's.

    Raises:
        ConfigError: A folder cannot be made, or the name is none.
    """
    with contextlib.ExitStack() as stack:

        def temporary() -> Path:
            made = TemporaryFolder()
            stack.callback(made.remove)
            return made.path

        listen = address_of(address) if isinstance(address, str) else address
        name = check_name(name or socket.gethostname(), "the name of a host")
        folder = Path(run_dir).absolute() if run_dir is not None else temporary()
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            (folder / "agents").mkdir(mode=0o700, exist_ok=True)
            sockets = folder / "sockets"
            if len(os.fsencode(sockets)) > _SOCKET_FOLDER_BYTES:
                sockets = temporary()
            sockets.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"a host cannot work in {folder}", str(error.strerror)) from error
        yield HostPlaces(name, listen, folder, sockets, Path(secret).absolute())


def run_worker_loop_forever(
    address: Address | str,
    secret: Path | str,
    *,
    run_dir: Path | str | None = None,
    name: str = "",
    say: Callable[[str], None] = print,
) -> None:
    """Let this host be joined, by one controller after the other, until SIGINT or SIGTERM.

    SIGINT ends all that works here at once.  SIGTERM lets it finish first (a drain: a replica
    leaves its run after the step in hand); a second one does not.

    Args:
        address: Where to listen, as in ``tcp:10.0.0.7:4500``.
        secret: File of the secret that controllers must hold too.
        run_dir: Folder for the host's own things, on its own disk; None: a temporary one.
        name: Of the host, for people; empty: the machine's.
        say: Shows a line to the person at the host.

    Raises:
        AddressRefused: The address cannot be bound.
        ConfigError: There is no secret.
    """
    with places_of(address, secret, run_dir=run_dir, name=name) as places:
        asyncio.run(serve_until_told(places, say))


async def serve_until_told(
    places: HostPlaces, say: Callable[[str], None], *, until_shutdown: bool = False
) -> None:
    """Let a host be joined until SIGINT or SIGTERM; on the main thread.

    Args:
        places: Where the host's things are.
        say: Shows a line to the person at the host.
        until_shutdown: Or until the first job that it works for is over here.
    """
    ending = asyncio.Event()
    host = WaitingHost(places, say, done=ending.set if until_shutdown else lambda: None)
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, ending.set)
    loop.add_signal_handler(signal.SIGTERM, host.leave, ending)
    await host.run(ending, lambda at: say(f"{places.name} waits to be joined at {at}"))
