"""The process of the quorum service, and one candidate for it: it leads, or stands by.

Owns what surrounds the service: options, signals, whom it ends with, its folder, and the turns
between leading and standing by.  ``danaus lighthouse`` and ``python -m danaus.quorum.service`` run
it.  Each time that it begins to lead it begins with a fresh machine, and what its folder holds if
that is known to be the newest.

Invariants:
    P-4: it ends with its controller: by the kernel with the lifeline that it was given, even
    while it is stopped; without one at the end of standard input, where that is a pipe and it was
    not told otherwise.  Detached it goes on for as long as there are members.
    Q-3: while it stands by, no join is answered.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from importlib import metadata

from danaus.core.clock import MonotonicClock
from danaus.core.errors import DanausError
from danaus.core.journal import Journal
from danaus.core.lifeline import arm_lifeline, end_watched, stdin_watched
from danaus.quorum.disk import QuorumDisk, watch_keeper
from danaus.quorum.gate import Gate, OpenGate
from danaus.quorum.http_face import HttpFace
from danaus.quorum.leading import ANSWER_SHARE, LeaseKeeper
from danaus.quorum.lease_events import Candidate, Follow, Lead
from danaus.quorum.lighthouse_status import LeaseStatus, LighthouseStatus
from danaus.quorum.messages import NotLeading
from danaus.quorum.minutes import Minutes
from danaus.quorum.own_process import own_name
from danaus.quorum.progress import StallJudge
from danaus.quorum.service import QuorumService
from danaus.quorum.service_options import ServiceOptions, read_options
from danaus.quorum.standby import StandbyDoor
from danaus.wire.address import Address
from danaus.wire.owned_tasks import OwnedTasks
from danaus.wire.secret import Secret

_UNNEEDED_LIMIT_S = 10.0

Say = Callable[[str], None]


class Lighthouse:
    """One candidate.

    Args:
        options: What it was started with.
        secret: The job's secret.
        minutes: Where its decisions are written down.
        say: Tells whoever has started it when it leads, and when it stands by.
    """

    def __init__(
        self, options: ServiceOptions, secret: Secret, minutes: Minutes, *, say: Say
    ) -> None:
        self.options, self.secret, self.minutes, self._say = options, secret, minutes, say
        self.ending = asyncio.Event()
        self.service: QuorumService | None = None
        self.door = StandbyDoor(secret)
        self.keeper: LeaseKeeper | None = None
        self.address = Address.parse(options.address)
        self._clock = MonotonicClock()
        self._started_s = self._clock.now()
        self._face: HttpFace | None = None
        self._resume = options.resume
        self._turns: asyncio.Queue[Lead | Follow] = asyncio.Queue()
        self._tasks = OwnedTasks("lighthouse")

    @property
    def num_members(self) -> int:
        """How many member processes it serves."""
        return self.service.num_members if self.service is not None else 0

    async def run(self) -> None:
        """Lead or stand by until ``ending`` is set.

        Raises:
            AddressRefused: The address cannot be bound.
            ConfigError: The lease cannot be used.
            OSError: The folder cannot be used.
        """
        try:
            if self.options.http:
                await self._show()
            if self.options.lease is None:
                await self._lead(OpenGate(), 0, trusts_disk=True)
                await self.ending.wait()
            else:
                await self._take_turns()
        finally:
            await self._tasks.close()
            await self.door.close()
            if self.service is not None:
                await self.service.close()
            if self.keeper is not None:
                await self.keeper.resign()
            if self._face is not None:
                await self._face.close()

    async def _show(self) -> None:
        face = HttpFace(self, self.secret, open_reading=self.options.http_open_reading)
        await face.start(_http_address(self.options.http))
        self._face = face
        self.minutes.note("lighthouse_page", url=face.url)
        self._say(f"page: {face.url}")

    # -- what is shown ----------------------------------------------------------------------------

    def status(self) -> LighthouseStatus:
        """Return what a person may want to know of this candidate."""
        service, keeper = self.service, self.keeper
        certain = keeper is None or keeper.is_open
        return LighthouseStatus(
            turn="stands by" if service is None else "leads" if certain else "is not certain",
            address=str(self.address),
            version=package_version(),
            up_s=round(self._clock.now() - self._started_s, 3),
            num_sessions=self.num_members,
            lease=_lease_status(keeper) if keeper is not None else None,
            quorum=service.status if service is not None else None,
            decisions=tuple(self.minutes.recent),
            counts=dict(self.minutes.counts),
        )

    def drain(self, replica_id: str, reason: str) -> bool | None:
        """Have a replica left out of the next quorum; None: another candidate leads."""
        if self.service is None or (self.keeper is not None and not self.keeper.is_open):
            return None
        return self.service.drain(replica_id, reason)

    # -- turns ------------------------------------------------------------------------------------

    async def _take_turns(self) -> None:
        """Lead while the lease is this candidate's, stand by while it is not."""
        self.address = await self.door.open(self.address)
        self.keeper = keeper = self._open_lease()
        keeper.start()
        ended = asyncio.create_task(self.ending.wait())
        try:
            while not self.ending.is_set():
                turn = asyncio.create_task(self._turns.get())
                await asyncio.wait((turn, ended), return_when=asyncio.FIRST_COMPLETED)
                if not turn.done():
                    turn.cancel()
                elif isinstance(order := turn.result(), Lead):
                    await self.door.close()
                    await self._lead(keeper, order.term, trusts_disk=order.trusts_disk)
                else:
                    await self._stand_by(order)
        finally:
            ended.cancel()

    def _open_lease(self) -> LeaseKeeper:
        options = self.options
        assert options.lease is not None
        store = options.lease.open(options.folder, limit_s=ANSWER_SHARE * options.lease_s)
        me = Candidate(
            name=f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}",
            address=str(self.address),
            disk=QuorumDisk(options.folder).id,
            process=own_name(),
            lease_s=options.lease_s,
            patient=options.standby,
        )
        return LeaseKeeper(me, store, self._turns.put_nowait, minutes=self.minutes)

    async def _lead(self, gate: Gate, term: int, *, trusts_disk: bool) -> None:
        disk = QuorumDisk(self.options.folder, term)
        saved = disk.claim()
        machine = self.options.machine(
            saved if trusts_disk else None,
            began=disk.began or not trusts_disk,
            least_term=term,
            resume=self._resume,
        )
        self._resume = False
        self.service = service = QuorumService(
            machine,
            disk,
            self.secret,
            judge=StallJudge(self.options.progress),
            minutes=self.minutes,
            gate=gate,
        )
        if self.keeper is not None:
            self.keeper.on_open = service.go_on
        await service.start(self.address)
        self.address = service.address
        self._say(f"leads at {self.address}" + (f", in term {term}" if term else ""))
        self._tasks.cancel()  # what watched an earlier turn
        self._tasks.start(watch_keeper(disk, self._folder_taken), "watch of the folder")

    def _folder_taken(self) -> None:
        """Another keeps the folder; by a lease that is no news, without one this one ends."""
        if self.keeper is None or self.keeper.is_open:
            self.ending.set()

    async def _stand_by(self, order: Follow) -> None:
        leader = f"{order.holder} leads" if order.holder else "nobody is known to lead"
        self.door.answer = NotLeading(order.holder, f"{self.address} stands by; {leader}")
        if self.service is not None:
            service, self.service = self.service, None
            assert self.keeper is not None
            self.keeper.on_open = lambda: None
            await service.close()
            await self.door.open(self.address)
        self._say(f"stands by at {self.address}: {order.reason}")


def _lease_status(keeper: LeaseKeeper) -> LeaseStatus:
    record = keeper.record
    return LeaseStatus(
        holder=record.holder if record is not None else "",
        address=record.address if record is not None and record.holder else "",
        term=record.term if record is not None else 0,
        lease_s=record.lease_s if record is not None else 0.0,
        remaining_s=round(keeper.remaining_s, 3),
        trouble=keeper.trouble,
    )


def _http_address(text: str) -> Address:
    """Return where ``HOST:PORT`` is; a port alone is on loopback."""
    place = text.removeprefix("tcp:")
    return Address.parse(f"tcp:{place}" if ":" in place else f"tcp:127.0.0.1:{place}")


def package_version() -> str:
    """Return the version of danaus that is installed here; empty: it is a source tree."""
    try:
        return metadata.version("danaus")
    except metadata.PackageNotFoundError:
        return ""


async def serve(options: ServiceOptions, say: Say = lambda _said: None) -> None:
    """Run a candidate until it is told to end, or its controller is gone.

    Args:
        options: What it is started with.
        say: Tells whoever has started it when it leads, and when it stands by.

    Raises:
        ConfigError, AddressRefused: Options that cannot be used.
    """
    if options.lifeline_fd >= 0:
        arm_lifeline(options.lifeline_fd)
    secret = Secret.load(options.secret_path)
    journal = Journal(options.journal) if options.journal is not None else None
    lighthouse = Lighthouse(options, secret, Minutes(journal), say=say)
    unattended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, lighthouse.ending.set)
    controller = os.getppid() if options.detached else 0
    watched = stdin_watched if options.watches_input else _unwatched
    leaving = OwnedTasks("service")
    with watched(loop, lighthouse.ending.set), end_watched(controller, unattended.set):
        try:
            leaving.start(_leave_unattended(lighthouse, unattended), "end without a controller")
            await lighthouse.run()
        finally:
            await leaving.close()
            if journal is not None:
                journal.close()


async def _leave_unattended(lighthouse: Lighthouse, unattended: asyncio.Event) -> None:
    """End a service that nobody owns any more once nobody needs it."""
    await unattended.wait()
    alone_s = 0.0
    while alone_s < _UNNEEDED_LIMIT_S:
        await asyncio.sleep(1.0)
        alone_s = 0.0 if lighthouse.num_members else alone_s + 1.0
    lighthouse.ending.set()


@contextlib.contextmanager
def _unwatched(_loop: asyncio.AbstractEventLoop, _end: Callable[[], None]) -> Iterator[None]:
    yield


def _tell(fd: int, line: str) -> None:
    """Tell whoever started this process, who may not listen any more."""
    if fd >= 0:
        with contextlib.suppress(OSError):
            os.write(fd, f"{line}\n".encode())


def main() -> None:
    """Run the service with the options of the command line; exit code 2 for bad ones."""
    try:
        options = read_options(sys.argv[1:])
        asyncio.run(serve(options, lambda line: _tell(options.ready_fd, line)))
    except DanausError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(2)
