"""Reading the cases files, and a small run that drives the quorum machine by hand."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from danaus.quorum.events import (
    Abort,
    Announce,
    Beaten,
    DeathReported,
    Event,
    Fence,
    Instruction,
    JoinAsked,
    NotifyPending,
    Persist,
    QuorumSettings,
    Refuse,
    Registered,
    Release,
    Saved,
    TellWaiting,
    TimePassed,
)
from danaus.quorum.messages import (
    Announcement,
    Epoch,
    Join,
    MemberId,
    OpenStep,
    QuorumRecord,
    Refused,
    Released,
    Seat,
    StepReport,
)
from danaus.quorum.resolve import follows
from danaus.quorum.state import QuorumMachine

CASES = Path(__file__).parent / "cases"
I = TypeVar("I")  # noqa: E741


def load(name: str) -> Any:
    """Return one cases file."""
    return json.loads((CASES / name).read_text())


def seat(name: str, rank: int = 0, incarnation: int = 0, num_ranks: int = 1) -> Seat:
    """Return the seat of one process."""
    member = MemberId(name, rank, incarnation)
    return Seat(member, num_ranks, f"unix:/{member}", "unix:/agent", str(member))


@dataclass
class Peer:
    """A member process as the service sees it: what it holds, and its number of asks."""

    seat: Seat
    report: StepReport = field(default_factory=lambda: StepReport(0, "seed"))
    number: int = 0
    told: Announcement | None = None
    refused: Refused | None = None
    released: Released | None = None
    pending: str = ""
    aborted: str = ""
    waiting: str = ""
    asking: bool = False

    @property
    def member(self) -> MemberId:
        return self.seat.member

    def become(self, **changes: Any) -> None:
        """Change what it would report."""
        self.report = msgspec.structs.replace(self.report, **changes)

    def hear(self, told: Announcement) -> None:
        """Follow an announcement: settle the open step, learn or restore at once."""
        seen = self.report.seen_epoch
        if seen is not None and told.epoch <= seen:
            return
        self.told, self.asking, self.pending, self.aborted = told, False, "", ""
        if follows(self.report, told.outcome) and self.report.open_step is not None:
            self.become(
                committed_step=told.outcome.step,
                committed_epoch=self.report.open_step.epoch,
                fingerprint=f"f{told.outcome.step}",
            )
        self.become(
            open_step=None,
            seen_term=told.epoch.term,
            seen_epoch=told.epoch,
            last_quorum=told.record(),
            lineage_term=told.lineage_term,
        )
        if told.start == "restore":
            step = told.committed_step
            self.become(committed_step=step, committed_epoch=told.epoch, fingerprint=f"f{step}")

    def commit(self, step: int) -> None:
        """Commit steps up to ``step`` in the standing quorum."""
        assert self.told is not None
        self.become(committed_step=step, committed_epoch=self.told.epoch, fingerprint=f"f{step}")

    def begin(self, step: int, vote: str = "none", digest: str = "") -> None:
        """Leave a step open."""
        assert self.told is not None
        self.become(open_step=OpenStep(step, self.told.epoch, vote, digest))  # type: ignore[arg-type]


class Town:
    """A machine, its clock, and the peers that it speaks with; messages arrive at once.

    Args:
        settings: The machine's.
        machine: More of its arguments.
    """

    def __init__(self, settings: QuorumSettings | None = None, **machine: Any) -> None:
        self.settings = settings or QuorumSettings()
        self.machine = QuorumMachine(self.settings, **machine)
        self.now = 100.0
        self.peers: dict[MemberId, Peer] = {}
        self.log: list[Instruction] = []
        self.saved: Saved | None = machine.get("saved")

    def peer(self, name: str, rank: int = 0, incarnation: int = 0, num_ranks: int = 1) -> Peer:
        """Return a process, new or known."""
        its = seat(name, rank, incarnation, num_ranks)
        return self.peers.setdefault(its.member, Peer(its))

    def do(self, event: Event) -> list[Instruction]:
        """Handle one event and deliver what follows from it."""
        out = list(self.machine.handle(event, self.now))
        self.log += out
        for instruction in out:
            self._deliver(instruction)
        return out

    def _deliver(self, said: Instruction) -> None:  # noqa: C901 - one arm per instruction
        match said:
            case Persist():
                self.saved = said.saved
            case Announce():
                if not said.again:
                    assert self.saved is not None
                    assert self.saved.announcement == said.announcement, "Q-1: saved before"
                for peer in self._known(said.to):
                    peer.hear(said.announcement)
            case Refuse():
                for peer in self._known(said.members):
                    peer.refused, peer.asking = said.message, False
            case Release():
                for peer in self._known(said.members):
                    peer.released, peer.asking = said.message, False
            case NotifyPending():
                for peer in self._known(said.members):
                    peer.pending = said.message.reason
            case Abort():
                for peer in self._known(said.members):
                    peer.aborted = said.message.reason
            case TellWaiting():
                self.peers[said.member].waiting = said.reason

    def _known(self, members: tuple[MemberId, ...]) -> list[Peer]:
        return [self.peers[member] for member in members if member in self.peers]

    def register(self, *peers: Peer) -> None:
        """Open a session for each."""
        for peer in peers:
            self.do(Registered(peer.seat, peer.report.last_quorum))

    def join(self, *peers: Peer, shrink_only: bool = False) -> list[Instruction]:
        """Let each ask for the next quorum; return what was ordered."""
        out: list[Instruction] = []
        for peer in peers:
            peer.number += 1
            peer.asking, peer.refused = True, None
            out += self.do(JoinAsked(Join(peer.seat, peer.report, peer.number, shrink_only)))
        return out

    def start(self, *names: str) -> list[Peer]:
        """Register and join replicas of one rank, so that they form the first quorum."""
        peers = [self.peer(name) for name in names]
        self.register(*peers)
        self.join(*peers)
        return peers

    def wait(self, seconds: float, *, silent: tuple[Peer, ...] = ()) -> list[Instruction]:
        """Let time pass in small steps while all but ``silent`` beat."""
        out: list[Instruction] = []
        end = self.now + seconds
        while self.now < end - 1e-9:
            self.now = min(end, self.now + 0.25)
            for peer in list(self.peers.values()):
                if peer not in silent:
                    epoch = peer.told.epoch if peer.told else None
                    out += self.do(Beaten(peer.member, epoch))
            out += self.do(TimePassed())
        return out

    def restart(self, **machine: Any) -> None:
        """Replace the machine by one that starts from the disk, or as ``machine`` says."""
        machine.setdefault("saved", self.saved)
        self.machine = QuorumMachine(self.settings, **machine)

    def die(self, *peers: Peer) -> None:
        """Have each death reported."""
        for peer in peers:
            self.do(DeathReported(peer.member, "ended by SIGKILL"))
            del self.peers[peer.member]

    def all(self, kind: type[I]) -> list[I]:
        """Return the instructions of one kind ever given."""
        return [said for said in self.log if isinstance(said, kind)]

    @property
    def last(self) -> Announcement:
        """The last announcement that was made to anyone."""
        return self.all(Announce)[-1].announcement


def names(told: Announcement | None) -> list[str]:
    """Return the replicas that an announcement counts."""
    assert told is not None
    return list(told.replica_ids)


def learners(told: Announcement | None) -> list[str]:
    """Return the replicas that an announcement has learn."""
    assert told is not None
    return sorted({learner.seat.member.replica_id for learner in told.learners})


def record(term: int, n: int, *members: str) -> QuorumRecord:
    """Return a quorum of replicas of one rank."""
    return QuorumRecord(Epoch(term, n), tuple(MemberId(name, 0, 0) for name in members))


def fenced(out: list[Instruction]) -> list[str]:
    """Return who was to be killed."""
    return [str(said.seat.member) for said in out if isinstance(said, Fence)]


def learning(town: Town, step: int = 5) -> tuple[Peer, Peer, Peer]:
    """Bring a and b to a step, and c in as a learner."""
    a, b = town.start("a", "b")
    a.commit(step)
    b.commit(step)
    c = town.peer("c")
    town.register(c)
    town.join(c)
    town.join(a, b)
    assert town.last.hold
    return a, b, c
