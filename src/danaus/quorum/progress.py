"""Who hangs: judging processes by how far they have come (P-3).

Owns the judgement only.  Positions come from the host agents (``wire.lifecycle``); what is done
about a verdict is the machine's (``quorum.state``).  Pure.

A position is ``(step, phase, collective)``: the higher, the further on.  Processes wait for each
other, so that many stand still when one hangs; only those furthest behind can be the cause.

A process that waits for the service or for a donor proves by its heartbeats that it lives, and it
waits for the service only until it is answered: else one that is stopped there would hide behind
its phase, and those who wait for it would be suspected instead.

Invariants:
    P-3: a rank that waits for another is never suspected; where more than a quarter of the fleet
    stalls at once nobody is, and it is reported; where those furthest behind stand in one
    exchange, or all at one position, the group is rebuilt once, then they are suspected; while
    one is unseen, who stands in an exchange may wait for it.  What is counted are replicas: ranks
    of one wait for each other, and of those that stand at one position only those are suspected
    that are not in an exchange among themselves.
"""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from danaus.quorum.messages import MemberId

KEPT_DURATIONS = 64

Position = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class ProgressSettings:
    """How long a process may stand still.

    Args:
        hang_limit_s: The limit, if it is named; None: it follows the work.
        factor: The limit in medians of the phase's duration.
        least_s: It is never under this.
        first_limit_s: The limit before a phase's duration is known, and in a process's first
            step: room for compilation.  A named limit is stretched by ``factor`` there instead,
            and to at least half a minute.
        rebuild_s: How long the members of a rebuilt group may take to leave where they stand.
        stale_s: Positions older than this say nothing.
        silent_s: One that waits and has not been heard for so long is not waiting.
        unseen_s: For so long, one whose host agent says nothing may be what others wait for in an
            exchange; by then it is known what has become of it.
    """

    hang_limit_s: float | None = None
    factor: float = 10.0
    least_s: float = 5.0
    first_limit_s: float = 300.0
    rebuild_s: float = 0.25
    stale_s: float = 1.0
    silent_s: float = 1.0
    unseen_s: float = 30.0


@dataclass(frozen=True, slots=True)
class Quiet:
    """How long nothing has come from a process, and since when it need not wait, in seconds.

    Args:
        silent_s: Since its last heartbeat.
        answered_s: Since what it asked the service for was answered; None: it was not.
        awaited: Others wait for it.
    """

    silent_s: float
    answered_s: float | None = None
    awaited: bool = True


@dataclass(frozen=True, slots=True)
class Observation:
    """Where one process stands, as its host agent saw it.

    Args:
        position: ``(step, phase, collective)``.
        still_s: How long it has stood there, in seconds.
        waiting: It stands there for others, or is done.
        starting: It has not come to its first step yet.
        apart: It learns while the others go on: nobody waits for it, nor it for anybody.
        together: It is in an exchange with other replicas.
        for_siblings: It is in an exchange with other ranks of its replica.
        quiet: What its heartbeats and asks say of one that waits.
        idle: It has no reason to stand there: it waits in name only.
        where: The position in words.
    """

    position: Position
    still_s: float
    waiting: bool = False
    starting: bool = False
    apart: bool = False
    together: bool = False
    for_siblings: bool = False
    quiet: Quiet | None = None
    idle: bool = False
    where: str = ""

    def __str__(self) -> str:
        step, phase, collective = self.position
        return self.where or f"step {step}, phase {phase}, collective {collective}"


@dataclass(frozen=True, slots=True)
class Suspect:
    """This process hangs, and has stood still for ``still_s``: fence it."""

    member: MemberId
    reason: str
    still_s: float


@dataclass(frozen=True, slots=True)
class RebuildGroup:
    """All stand at one position: form the group anew."""

    reason: str


@dataclass(frozen=True, slots=True)
class StormReported:
    """Too many stall at once for it to be their fault: report storage or network."""

    reason: str


Verdict = Suspect | RebuildGroup | StormReported


@dataclass(slots=True)
class _Track:
    """What is known of one process."""

    seen: Observation
    at: float
    fresh_until_step: int | None = None
    suspected: bool = False


@dataclass(slots=True)
class _Rebuild:
    """The group was rebuilt because all stood in this step."""

    step: int
    at: float


@dataclass(slots=True)
class StallJudge:
    """Judge who hangs.

    Args:
        settings: Its limits.
    """

    settings: ProgressSettings = field(default_factory=ProgressSettings)
    _tracks: dict[MemberId, _Track] = field(default_factory=dict)
    _durations: dict[int, deque[float]] = field(default_factory=dict)
    _rebuilt: _Rebuild | None = None
    _storm: frozenset[MemberId] = frozenset()
    _pardoned_at: float = -math.inf
    _began_at: float | None = None
    _unheard: bool = False

    def observe(
        self,
        seen: Mapping[MemberId, Observation],
        now: float,
        *,
        members: Collection[MemberId] = (),
    ) -> tuple[Verdict, ...]:
        """Take in positions that were read at one moment and return what they mean.

        Args:
            seen: By process; others keep what was seen of them last.
            now: Seconds on one monotonic clock.
            members: Who takes part and lives.  A judge that has just begun has not seen all of
                them, and one of the others may be what those wait for that it has seen.
        """
        self._began_at = now if self._began_at is None else self._began_at
        new = now - self._began_at <= self.settings.unseen_s
        self._unheard = new and any(m not in self._tracks and m not in seen for m in members)
        for member, observation in seen.items():
            self._take(member, self._unmasked(observation), now)
        return self._judge(now)

    def forget(self, members: Iterable[MemberId], now: float) -> None:
        """Drop processes that are dead or out of reach.

        Whoever stood still may have waited for them, and begins to count anew.
        """
        for member in members:
            if self._tracks.pop(member, None) is not None:
                self._pardoned_at = now

    # -- what is known ------------------------------------------------------------------------

    def _unmasked(self, seen: Observation) -> Observation:
        """Return what is seen of a process that waits in name only as that of one that stands."""
        quiet = seen.quiet
        if quiet is None or not (seen.waiting or seen.apart):
            return seen
        if quiet.silent_s > self.settings.silent_s:
            still_s, why = quiet.silent_s, "silent"
        elif quiet.answered_s is not None:
            still_s, why = quiet.answered_s, "answered"
        else:
            return seen
        still_s = min(still_s, seen.still_s)
        where = f"{seen}, {why}"
        return replace(seen, waiting=False, idle=True, still_s=still_s, where=where)

    def _take(self, member: MemberId, seen: Observation, now: float) -> None:
        track = self._tracks.get(member)
        if track is None:
            track = self._tracks[member] = _Track(seen, now)
        elif seen.position != track.seen.position or seen.still_s < track.seen.still_s:
            if not (track.seen.waiting or track.seen.idle or track.seen.apart):
                stood_s = track.seen.still_s + max(0.0, now - seen.still_s - track.at)
                phase = track.seen.position[1]
                self._durations.setdefault(phase, deque(maxlen=KEPT_DURATIONS)).append(stood_s)
            track.suspected = False
        if seen.starting:
            track.fresh_until_step = -1
        elif track.fresh_until_step == -1 and not (seen.waiting or seen.idle or seen.apart):
            track.fresh_until_step = seen.position[0]
        track.seen, track.at = seen, now

    def limit_s(self, member: MemberId) -> float:
        """Return how long a process may stand where it stands now, in seconds."""
        track, settings = self._tracks[member], self.settings
        step, phase, _ = track.seen.position
        if track.seen.idle:
            return settings.least_s if settings.hang_limit_s is None else settings.hang_limit_s
        fresh = track.fresh_until_step
        first = track.seen.apart or (fresh is not None and (fresh == -1 or step <= fresh))
        if settings.hang_limit_s is not None:
            stretched = max(settings.factor * settings.hang_limit_s, 30.0)
            return stretched if first else settings.hang_limit_s
        known = self._durations.get(phase)
        if first or not known:
            return settings.first_limit_s
        return max(settings.least_s, settings.factor * statistics.median(known))

    def _still_s(self, member: MemberId) -> float:
        track = self._tracks[member]
        return min(track.seen.still_s, track.at - self._pardoned_at)

    # -- judging ------------------------------------------------------------------------------

    def _judge(self, now: float) -> tuple[Verdict, ...]:
        live = {
            member: track
            for member, track in self._tracks.items()
            if now - track.at <= self.settings.stale_s and not track.seen.waiting
        }
        stalled = {m for m in live if self._still_s(m) >= self.limit_s(m)}
        if not stalled:
            self._storm = frozenset()
            return ()
        # One that starts or learns is behind all others, but they do not wait for it.
        running = {m: t for m, t in live.items() if not (t.seen.starting or t.seen.apart)}
        behind = min((track.seen.position for track in running.values()), default=None)
        last = [m for m, track in running.items() if track.seen.position == behind]
        # In an exchange each waits for all the others: any of them may be the one that hangs.
        together = bool(last) and all(running[m].seen.together for m in last)
        if together and self._unseen(now):
            return self._suspect(sorted(stalled - running.keys()), now)
        if together and len(_replicas(last)) == 1 and self._may_wait(last, running, stalled):
            return self._all_at_one(sorted(last), now)
        alike = together or len(last) == len(running)
        last = self._without_those_who_wait(last)
        if alike and len(_replicas(last)) > 1:
            if stalled.issuperset(last):
                return self._all_at_one(sorted(last), now)
            # The first to have stood there for long need not be the cause.
            return self._suspect(sorted(stalled - running.keys()), now)
        return self._suspect(sorted(m for m in stalled if m in last or m not in running), now)

    def _without_those_who_wait(self, last: list[MemberId]) -> list[MemberId]:
        """Leave out who waits for a sibling, if one stands beside it that does not.

        One that is silent waits in name only: it was stopped within the exchange.
        """
        silent_s = self.settings.silent_s
        waits: set[MemberId] = set()
        for member in last:
            seen = self._tracks[member].seen
            if seen.for_siblings and (seen.quiet is None or seen.quiet.silent_s <= silent_s):
                waits.add(member)
        at_work = _replicas(member for member in last if member not in waits)
        return [m for m in last if m not in waits or m.replica_id not in at_work]

    def _unseen(self, now: float) -> bool:
        """Tell whether a process is neither seen, or not yet, nor known to be gone."""
        if self._unheard:
            return True
        settings = self.settings
        ages = (now - track.at for track in self._tracks.values())
        return any(settings.stale_s < age <= settings.unseen_s for age in ages)

    def _may_wait(
        self, last: list[MemberId], running: Mapping[MemberId, _Track], stalled: set[MemberId]
    ) -> bool:
        """Tell whether one replica alone in an exchange may wait for words that were lost.

        Others may have had all that they needed of it.  A rebuilt group tells.
        """
        step = running[last[0]].seen.position[0]
        is_news = self._rebuilt is None or self._rebuilt.step != step
        return is_news and len(running) > len(last) and stalled.issuperset(last)

    def _all_at_one(self, members: list[MemberId], now: float) -> tuple[Verdict, ...]:
        """Rebuild the group the first time that they stand in this step, then suspect them."""
        seen, done = self._tracks[members[0]].seen, self._rebuilt
        if done is None or done.step != seen.position[0]:
            self._rebuilt = _Rebuild(seen.position[0], now)
            names = ", ".join(str(member) for member in members)
            stand = "stands" if len(members) == 1 else "stand"
            return (RebuildGroup(f"{names} {stand} still at {seen} for {seen.still_s:.1f} s"),)
        if now - done.at < min(self.limit_s(member) for member in members):
            return ()
        return self._accuse(members, "all others too, again after a rebuild; ")

    def _suspect(self, suspects: list[MemberId], now: float) -> tuple[Verdict, ...]:
        done = self._rebuilt
        if done is not None and now - done.at < self.settings.rebuild_s:
            return ()
        fleet = _replicas(m for m, t in self._tracks.items() if now - t.at <= self.settings.stale_s)
        accused = _replicas(suspects)
        if len(accused) <= max(1, len(fleet) / 4):
            return self._accuse(suspects)
        if self._storm >= frozenset(suspects):
            return ()
        self._storm = frozenset(suspects)
        names = ", ".join(str(member) for member in suspects)
        return (
            StormReported(
                f"{len(accused)} of {len(fleet)} replicas stall at once ({names}): nobody is "
                "evicted; look at storage and network"
            ),
        )

    def _accuse(self, members: list[MemberId], why: str = "") -> tuple[Verdict, ...]:
        """Name those that were not named yet for where they stand."""
        verdicts = []
        for member in members:
            track, limit_s = self._tracks[member], self.limit_s(member)
            if not track.suspected:
                track.suspected = True
                stands = f"stands still at {track.seen} for {track.seen.still_s:.1f} s"
                reason = f"{stands} ({why}limit {limit_s:.1f} s)"
                verdicts.append(Suspect(member, reason, track.seen.still_s))
        return tuple(verdicts)


def _replicas(members: Iterable[MemberId]) -> set[str]:
    return {member.replica_id for member in members}
