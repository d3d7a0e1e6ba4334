"""All that the quorum machine knows between two events.

Owns the values only: who is there, which quorum stands, what was said of it, what to remember
over many.  ``quorum.state`` hears, ``quorum.watch`` looks after the standing quorum,
``quorum.convene`` forms the next one; each reads and writes a ``Situation``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from danaus.quorum.events import (
    Announce,
    Fence,
    Instruction,
    ProbeProcess,
    QuorumSettings,
    Refuse,
    TellWaiting,
)
from danaus.quorum.messages import (
    Announcement,
    Epoch,
    Finding,
    Join,
    Learner,
    MemberId,
    QuorumRecord,
    Refused,
    Seat,
)
from danaus.quorum.rifts import Rifts
from danaus.quorum.roster import Incarnation, Process, Roster, incarnation_of

BEFORE_ALL = Epoch(0, 0)


@dataclass(slots=True)
class Episode:
    """What has been said about the standing quorum since it was announced.

    ``hold_until`` is when its members wait no longer for learners; ``last_call``, once all of them
    have taken the run's last step, when they wait no longer for those that trail.  ``brief`` are
    the learners that could trail and are waited for because that is quicker.
    """

    hold_until: float = 0.0
    last_call: float = 0.0
    brief: frozenset[Incarnation] = frozenset()
    rebuild: str = ""
    notified: set[MemberId] = field(default_factory=set)
    aborted: dict[MemberId, str] = field(default_factory=dict)
    judged: set[Incarnation] = field(default_factory=set)


@dataclass(slots=True)
class Lessons:
    """How often each learner failed to fetch its state, or held a wrong one after it had.

    ``late`` are those that were not there when the members had waited for as long as it was worth
    to them; ``took_s`` is how long the last one took that became a member (0: not known).
    """

    failures: dict[Incarnation, int] = field(default_factory=dict)
    wrong: dict[Incarnation, int] = field(default_factory=dict)
    late: set[Incarnation] = field(default_factory=set)
    took_s: float = 0.0

    def count(self, of: Incarnation) -> int:
        """Return how often an incarnation has learned in vain."""
        return self.failures.get(of, 0) + self.wrong.get(of, 0)

    def pause_s(self, of: Incarnation) -> float:
        """Return how long a learner that failed waits before the members wait for it again."""
        over = self.count(of) - 1
        return min(2.0 ** (over - 1), 60.0) if over > 0 else 0.0

    def patience(self, of: Incarnation) -> int:
        """Return by how much earlier failures stretch the wait for a learner."""
        return int(min(2 ** self.count(of), 8))

    def forget(self, of: Incarnation, took_s: float) -> None:
        """Note that an incarnation has become a member, after a lesson of so many seconds."""
        self.took_s = took_s or self.took_s
        self.failures.pop(of, None)
        self.wrong.pop(of, None)
        self.late.discard(of)


@dataclass(slots=True)
class Undo:
    """What stood before an announcement, until it is known to be saved."""

    standing: Announcement | None
    diverged: tuple[int, ...]
    episode: Episode
    joins: list[tuple[Process, Join]]


@dataclass(slots=True)
class Situation:
    """What is known; ``out`` gathers the instructions of the event in hand.

    ``heard`` is the largest quorum that anyone named, ``forgotten`` the epoch up to which nobody
    is believed, ``floor`` the highest epoch used even if it could not be saved, ``diverged`` the
    steps that replicas disagreed about without a majority, ``slow`` who computes far more slowly
    than the others, ``lost`` that a quorum may stand that
    the disk does not hold, ``deaf`` that nobody is heard.
    """

    settings: QuorumSettings
    ledger_steps: int = 0
    ledger_term: int = 0
    resume: bool = False
    lost: bool = False
    deaf: bool = False
    now: float = 0.0
    started: float = 0.0
    retry_at: float = 0.0
    roster: Roster = field(default_factory=Roster)
    standing: Announcement | None = None
    heard: QuorumRecord | None = None
    forgotten: Epoch = BEFORE_ALL
    floor: Epoch = BEFORE_ALL
    diverged: tuple[int, ...] = ()
    stopped: Refused | None = None
    episode: Episode = field(default_factory=Episode)
    lessons: Lessons = field(default_factory=Lessons)
    rifts: Rifts = field(default_factory=Rifts)
    slow: dict[MemberId, Finding] = field(default_factory=dict)
    undo: Undo | None = None
    out: list[Instruction] = field(default_factory=list)

    # -- facts --------------------------------------------------------------------------------

    @property
    def by_hearsay(self) -> bool:
        """Tell whether the last quorum is known from its members only (Q-3)."""
        if self.heard is None:
            return False
        return self.standing is None or self.heard.epoch > self.standing.epoch

    @property
    def previous(self) -> QuorumRecord | None:
        """The last quorum; None: none was, or nothing was heard of it."""
        if self.by_hearsay:
            return self.heard
        return self.standing.record() if self.standing is not None else None

    @property
    def finished(self) -> bool:
        """Tell whether the run is done, and not all that hold its end were killed since."""
        told, roster = self.standing, self.roster
        if told is None or not told.finished or self.by_hearsay:
            return False
        members = [seat.member for seat in told.members]
        return any(member not in roster.dead or member in roster.exited for member in members)

    @property
    def began(self) -> bool:
        """Tell whether the run has, or may have, committed steps."""
        return self.lost or self.resume or self.ledger_steps > 0 or self.previous is not None

    def holding(self) -> tuple[Learner, ...]:
        """Return the learners that the standing quorum waits for."""
        standing = self.standing
        if standing is None or not standing.hold or self.by_hearsay:
            return ()
        return tuple(each for each in standing.learners if each.trail is None)

    def trailing(self) -> tuple[Learner, ...]:
        """Return the learners that the standing quorum lists and does not wait for."""
        standing = self.standing
        if standing is None or self.by_hearsay:
            return ()
        return tuple(each for each in standing.learners if each.trail is not None)

    def told_of(self, member: MemberId) -> Epoch | None:
        """Return the epoch that a process in the standing quorum was told last; None: not in it.

        One that trails was told where its trail begins, and nothing since.
        """
        if self.standing is None or all(member != seat.member for seat in self.told()):
            return None
        trails = [each.trail for each in self.standing.learners if each.seat.member == member]
        return trails[0].epoch if trails and trails[0] is not None else self.standing.epoch

    def told(self) -> tuple[Seat, ...]:
        """Return the seats that the standing quorum lists."""
        if self.standing is None or self.by_hearsay:
            return ()
        return (*self.standing.members, *(learner.seat for learner in self.standing.learners))

    def hear(self, record: QuorumRecord | None) -> None:
        """Note a quorum that someone stands or stood in."""
        if record is None or record.epoch <= self.forgotten:
            return
        known = self.previous
        if known is None or record.epoch > known.epoch:
            self.heard = record
            ranks = Counter(incarnation_of(member) for member in record.members)
            seats = {seat.member: seat for seat in record.seats}
            for member in record.members:
                seat = seats.get(member) or Seat(member, ranks[incarnation_of(member)], "")
                if seat.agent_address and member not in self.roster.processes:
                    # It may have died while nobody watched, and will never say so itself.
                    self.out.append(ProbeProcess(seat))
                self.roster.expect(seat, self.now)

    # -- instructions -------------------------------------------------------------------------

    def tell(self, reason: str) -> None:
        """Tell all who ask why they wait, where it is news; empty: those who are left out."""
        for process in self.roster.joined():
            left_out = self.roster.left_out.get(incarnation_of(process.seat.member))
            words = left_out and f"{process.seat.member.replica_id} {left_out}"
            words = words or reason
            if words and process.told != words:
                process.told = words
                self.out.append(TellWaiting(process.seat.member, words))

    def fence(self, process: Process, reason: str, *, save_stacks: bool = False) -> None:
        """Have a process killed, unless that is under way."""
        if process.fenced_at is None and not self.roster.lost(process.seat.member):
            process.fenced_at, process.fence_reason = self.now, reason
            self.out.append(Fence(process.seat, reason, save_stacks))

    def refuse(self, processes: Iterable[Process], message: Refused) -> None:
        """Answer joins for good."""
        members = []
        for process in processes:
            process.join, process.told, process.refused = None, "", True
            members.append(process.seat.member)
        if members:
            self.out.append(Refuse(tuple(members), message))

    def announce_again(self, seat: Seat) -> None:
        """Tell one of the standing quorum of it once more; of a finished run, anyone."""
        told = self.standing
        if told is None:
            return
        if (process := self.roster.processes.get(seat.member)) is not None:
            process.answered_at = self.now
        if all(seat.member != known.member for known in self.told()):
            learners = (*told.learners, Learner(seat, ()))
            told = msgspec.structs.replace(told, learners=learners)
        self.out.append(Announce(told, (seat.member,), again=True))
