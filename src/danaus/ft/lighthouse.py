"""The quorum service from Python, in the words that TorchFT's users know.

Owns ``LighthouseServer``, which starts the service as a process of its own, and
``LighthouseClient``, which takes part in quorums without training: for tools and tests.  None of it
needs torch.  ``Manager`` and ``Loop`` bring their own line to the service.

Source: TorchFT's ``LighthouseServer`` and ``LighthouseClient``.  What differs: all who come prove
that they hold the job's secret; a quorum follows the one before it only as Q-3 says; a client
beats by itself for as long as it lives, so that ``heartbeat`` only sees to it that it does.
"""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
from dataclasses import dataclass
from datetime import timedelta
from io import FileIO
from pathlib import Path
from typing import Self, TypedDict, Unpack

from danaus.core.clock import Deadline
from danaus.core.errors import ConfigError, NoQuorum
from danaus.core.lifeline import open_lifeline
from danaus.core.temporary_folder import TemporaryFolder
from danaus.quorum.client import QuorumClient
from danaus.quorum.folder import RunFiles
from danaus.quorum.messages import Announcement, Epoch, MemberId, Released, Seat, StepReport
from danaus.wire.address import Address, advertised
from danaus.wire.routes import ReservedPort
from danaus.wire.secret import Secret

START_LIMIT_S = 30.0
_GRACE_S = 5.0


class LighthouseOptions(TypedDict, total=False):
    """What a ``LighthouseServer`` may be told besides where it listens.

    Attributes:
        folder: Where it keeps its state, the secret and its journal; one that ends with it unless
            given.
        expected_replicas: Replicas that the first quorum waits for until the join limit.
        join_timeout_ms: How long a healthy replica that has not asked is waited for.
        heartbeat_timeout_ms: A process that is silent for longer is not healthy.
        quorum_tick_ms: Means nothing here: nothing is polled.
        http: Where its page is, ``HOST:PORT``.
    """

    folder: str | os.PathLike[str]
    expected_replicas: int
    join_timeout_ms: int
    heartbeat_timeout_ms: int
    quorum_tick_ms: int
    http: str


class LighthouseServer:
    """The quorum service, as a process that ends with this one.

    Args:
        bind: Where to listen, ``HOST:PORT``; port 0 takes a free one.
        min_replicas: Replicas without which no step is taken.
        options: See ``LighthouseOptions``.

    Attributes:
        secret_path: The file whose holders may take part; ``Manager`` and ``LighthouseClient``
            take it as ``secret_path``.
        page: Where its page is; empty: nowhere.

    Raises:
        AddressRefused: There is no such address here.
        ConfigError: It ended instead of listening; says what it said.
    """

    def __init__(
        self, bind: str = "127.0.0.1:0", min_replicas: int = 1, **options: Unpack[LighthouseOptions]
    ) -> None:
        self._own = TemporaryFolder() if "folder" not in options else None
        folder = self._own.path if self._own is not None else Path(options["folder"])
        files = RunFiles.prepare(folder)
        self.secret_path = files.secret
        wanted = Address.parse(f"tcp:{bind.removeprefix('tcp:')}")
        self._port = ReservedPort(wanted.host) if wanted.port == 0 else None
        self._address = self._port.address if self._port is not None else wanted
        self._lifeline = open_lifeline()
        words = _words(options) | {"min-replicas": str(min_replicas)}
        command = [
            *(sys.executable, "-m", "danaus.quorum.service", f"--run={folder}"),
            *(f"--address={self._address}", f"--lifeline-fd={self._lifeline[0]}"),
            *(f"--{name}={value}" for name, value in words.items()),
        ]
        log = folder / "lighthouse.log"
        self._process, said = _start(command, self._lifeline[0], log)
        if not any(line.startswith("leads ") for line in said):
            why = log.read_text(errors="replace").strip().rpartition("\n")[2]
            self.shutdown()
            why = why or f"it did not listen within {START_LIMIT_S:g} s"
            raise ConfigError(f"no lighthouse at {self._address}", why)
        pages = [line.removeprefix("page: ") for line in said if line.startswith("page: ")]
        self.page = pages[0] if pages else ""

    @property
    def pid(self) -> int:
        """The service's process."""
        return self._process.pid

    def address(self) -> str:
        """Return where members dial it: ``lighthouse_addr`` of a ``Manager`` on this machine.

        Others put a name of this machine in the place of a host that stands for all of its
        addresses.
        """
        return str(advertised(self._address, Address.tcp("127.0.0.1", 9)))

    def shutdown(self) -> None:
        """End the service; members train on among themselves."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(_GRACE_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait(_GRACE_S)
        for fd in self._lifeline:
            with contextlib.suppress(OSError):
                os.close(fd)
        self._lifeline = (-1, -1)
        if self._port is not None:
            self._port.close()
        if self._own is not None:
            self._own.remove()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()


def _start(
    command: list[str], lifeline: int, log: Path
) -> tuple[subprocess.Popen[bytes], list[str]]:
    """Start the service; return it and what it said until it led, or ended."""
    ready, write = os.pipe()
    try:
        with log.open("ab") as errors:
            process = subprocess.Popen(
                [*command, f"--ready-fd={write}"],
                stdin=subprocess.DEVNULL,
                stdout=errors,
                stderr=errors,
                pass_fds=(lifeline, write),
                start_new_session=True,
            )
    finally:
        os.close(write)
    with open(ready, "rb", buffering=0) as said:
        return process, _listen_to(said)


def _listen_to(said: FileIO) -> list[str]:
    deadline, text = Deadline.after(START_LIMIT_S), ""
    while "leads " not in text and select.select([said], [], [], deadline.remaining_s())[0]:
        more = said.read(4096)
        if not more:
            break
        text += more.decode(errors="replace")
    return text.splitlines()


def _words(options: LighthouseOptions) -> dict[str, str]:
    """Return the options as the service's command line has them."""
    words = {}
    if "expected_replicas" in options:
        words["expected-replicas"] = str(options["expected_replicas"])
    if "join_timeout_ms" in options:
        words["join-limit-s"] = str(options["join_timeout_ms"] / 1000)
    if "heartbeat_timeout_ms" in options:
        words["heartbeat-limit-s"] = str(options["heartbeat_timeout_ms"] / 1000)
    if "http" in options:
        words["http"] = options["http"]
    return words


@dataclass(frozen=True, slots=True)
class QuorumMember:
    """One process of a quorum.

    Args:
        replica_id: Its replica.
        rank: Its place in that.
        incarnation: Of the replica.
        address: What it had said where it is reached.
        world_size: Processes of its replica.
    """

    replica_id: str
    rank: int
    incarnation: int
    address: str
    world_size: int


@dataclass(frozen=True, slots=True)
class Quorum:
    """A quorum as the service has announced it.

    Args:
        epoch: Its epoch; grows with each quorum.
        participants: Who counts, in order.
        learners: Who is to learn their state.
        committed_step: Where the participants stand.
        reason: Why it is these.
    """

    epoch: Epoch
    participants: tuple[QuorumMember, ...]
    learners: tuple[QuorumMember, ...]
    committed_step: int
    reason: str

    @property
    def quorum_id(self) -> int:
        """The epoch as one number, which grows with it."""
        return (self.epoch.term << 32) + self.epoch.n


class LighthouseClient:
    """Takes part in quorums under any number of names, without training.

    Args:
        addr: Where the service listens, or all of whom may be the service, with commas between.
        connect_timeout: How long to try to reach it, in seconds or as a ``timedelta``.
        secret_path: The job's secret, a 0600 file.
    """

    def __init__(
        self,
        addr: str,
        connect_timeout: timedelta | float = 10.0,
        *,
        secret_path: str | os.PathLike[str],
    ) -> None:
        self._addr, self._limit_s = addr, _seconds(connect_timeout)
        self._secret = Secret.load(secret_path)
        self._lines: dict[str, QuorumClient] = {}
        self._told: dict[str, Announcement] = {}

    def heartbeat(self, replica_id: str, timeout: timedelta | float | None = None) -> None:
        """See to it that a replica counts as alive, from now until ``leave`` or ``shutdown``.

        Args:
            replica_id: Of the replica.
            timeout: How long the service may take to be reached, also in seconds; default: as
                the client was made with.

        Raises:
            ServiceLost: The service was not reached within ``timeout``.
        """
        limit_s = self._limit_s if timeout is None else _seconds(timeout)
        self._line(replica_id).reach(Deadline.after(limit_s))

    def quorum(
        self,
        replica_id: str,
        timeout: timedelta | float,
        *,
        address: str = "",
        step: int = 0,
        shrink_only: bool = False,
    ) -> Quorum:
        """Ask for the next quorum and wait for it.

        Args:
            replica_id: Who asks: a replica of one process.
            timeout: How long to wait, in seconds or as a ``timedelta``.
            address: Where it is reached by its peers; of the first call for a replica.
            step: Steps that it has applied; who says the same number holds the same state.
            shrink_only: Ask that no newcomer be admitted.

        Raises:
            NoQuorum: There will be none for it: it was refused, or has left.
            ServiceLost: The service was not reached.
            DeadlinePassed: The time is over; says what was waited for.
        """
        line, told = self._line(replica_id, address), self._told.get(replica_id)
        report = StepReport(
            committed_step=step,
            fingerprint=f"step {step}",
            committed_epoch=told.epoch if told is not None and step else None,
            last_quorum=told.record() if told is not None else None,
            seen_epoch=told.epoch if told is not None else None,
            lineage_term=told.lineage_term if told is not None else 0,
        )
        deadline = Deadline.after(_seconds(timeout))
        answer = line.join(report, deadline, shrink_only=shrink_only)
        if isinstance(answer, Released):
            raise NoQuorum(answer.reason, "end this replica")
        self._told[replica_id] = answer
        return _quorum_of(answer)

    def leave(self, replica_id: str, reason: str = "it leaves") -> None:
        """Ask that a replica be left out of the next quorum."""
        if (line := self._lines.get(replica_id)) is not None:
            line.leave(reason)

    def shutdown(self) -> None:
        """Hang up for all names."""
        for line in self._lines.values():
            line.close()
        self._lines.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()

    def _line(self, replica_id: str, address: str = "") -> QuorumClient:
        line = self._lines.get(replica_id)
        if line is None:
            seat = Seat(MemberId(replica_id, 0, 0), 1, address or f"none:{replica_id}")
            line = self._lines[replica_id] = QuorumClient(self._addr, self._secret, seat)
        return line


def _seconds(limit: timedelta | float) -> float:
    return limit.total_seconds() if isinstance(limit, timedelta) else float(limit)


def _quorum_of(told: Announcement) -> Quorum:
    return Quorum(
        told.epoch,
        tuple(_member_of(seat) for seat in told.members),
        tuple(_member_of(learner.seat) for learner in told.learners),
        told.committed_step,
        told.reason,
    )


def _member_of(seat: Seat) -> QuorumMember:
    who = seat.member
    return QuorumMember(
        who.replica_id, who.rank, who.incarnation, seat.data_address, seat.num_ranks
    )
