"""Who takes part in the next step: the quorum service's pure machine.

Owns ``handle(event, now)``, which returns instructions; the shell (``quorum.service``) carries
them out in their order.  No clock, socket, task or chance is in here; the simulation runs the
same machine.  ``quorum.watch`` looks after the quorum that stands, ``quorum.convene`` forms the
next one.

Time passes only by ``now``.  The shell obeys ``WakeAt``: a longer gap between two events is taken
for a time in which the service itself did not run, and counts as nobody's silence.

A member of the standing quorum has joined only with a report that knows that quorum: a join that
was sent before its announcement arrived is answered with that announcement again.  So every
answer to a join has an epoch above all that its report knows, and whoever asks drops the rest.

Invariants:
    Q-1: epochs only grow, and each is saved with its members before anyone hears of it.
    Q-2: all members of a quorum are told the same.
    Q-3: never two quorums that could commit.
    Q-7: who is left behind is fenced first.
    Q-8: each decision carries a reason.
    T-1: an open step's outcome, once saved, stands; a member that has not followed the
    announcement that carried it is told it again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from danaus.quorum.convene import convene, take_back
from danaus.quorum.events import (
    Abort,
    Beaten,
    DeathReported,
    Disconnected,
    DiskFailed,
    Event,
    Fence,
    FoundOut,
    HangSuspected,
    HostGone,
    Instruction,
    JoinAsked,
    LeaveAsked,
    ListenerGone,
    NoteFinding,
    ProbeProcess,
    QuorumSettings,
    RebuildAsked,
    Registered,
    Renounced,
    Saved,
    Started,
    TimePassed,
    Unreachable,
    WakeAt,
)
from danaus.quorum.leaving import departing, wake
from danaus.quorum.messages import AbortExchange, Epoch, Join, MemberId, Refused
from danaus.quorum.progress import Quiet
from danaus.quorum.repairs import renounce, renounce_older
from danaus.quorum.roster import Incarnation, Process, incarnation_of
from danaus.quorum.situation import Episode, Situation
from danaus.quorum.status import Progress, QuorumStatus, status_of
from danaus.quorum.watch import counted, remind, tell_members, watch_processes

LONGEST_SLEEP_S = 1.0
"""The shell is woken at least this often; a much longer gap means that it did not run."""

GAP_S = 2.0
INSTANT_S = 0.001


class QuorumMachine:
    """Decide who takes part in the next step (Q-1 to Q-9).

    Args:
        settings: Policy.
        saved: What the disk holds; None: nothing.
        ledger_steps: Steps that the run's ledgers say were committed.
        ledger_term: The highest term that they name.
        resume: Whoever was in the last quorum is known to be gone: begin anew from a checkpoint.
        lost: The disk was lost.  None: it was if it is empty though the ledger is not.  An empty
            disk that was not lost is a first start.
    """

    def __init__(
        self,
        settings: QuorumSettings,
        saved: Saved | None = None,
        ledger_steps: int = 0,
        *,
        resume: bool = False,
        lost: bool | None = None,
        ledger_term: int = 0,
    ) -> None:
        if lost is None:
            lost = saved is None and ledger_steps > 0
        s = Situation(settings, ledger_steps, ledger_term, resume, lost and not resume)
        if saved is not None:
            s.diverged = saved.diverged
            s.forgotten = saved.announcement.epoch if resume else s.forgotten
            s.standing = None if resume else saved.announcement
        self._s = s
        self._last: float | None = None
        self._due = 0.0
        self._restless = False

    @property
    def epoch(self) -> Epoch | None:
        """The epoch of the standing quorum; None: there is none."""
        return self._s.standing.epoch if self._s.standing is not None else None

    def is_lost(self, member: MemberId) -> bool:
        """Tell whether a process is dead or out of reach."""
        return self._s.roster.lost(member)

    def is_renounced(self, member: MemberId) -> bool:
        """Tell whether a process has given a name up, and lives on under another (H-3)."""
        return member in self._s.roster.renounced

    @property
    def members(self) -> tuple[MemberId, ...]:
        """The living members of the last quorum."""
        previous = self._s.previous
        return tuple(m for m in previous.members if not self.is_lost(m)) if previous else ()

    def quiet(self, member: MemberId, now: float) -> Quiet | None:
        """Return how long nothing has come from a process; None: it is not known."""
        process = self._s.roster.processes.get(member)
        if process is None:
            return None
        answered_at = process.answered_at
        return Quiet(
            now - process.beat_at,
            now - answered_at if answered_at is not None else None,
            awaited=member in counted(self._s),
        )

    @property
    def finished(self) -> bool:
        """Tell whether the run is done."""
        return self._s.finished

    def status(self, now: float, progress: Mapping[MemberId, Progress]) -> QuorumStatus:
        """Return what a person may want to know; ``progress`` is what else was heard of steps."""
        return status_of(self._s, now, progress)

    def newest(self, replica_id: str) -> MemberId | None:
        """Return a process of a replica's newest incarnation; None: there is no such replica."""
        incarnation = self._s.roster.newest.get(replica_id)
        if incarnation is None:
            return None
        return self._s.roster.ranks((replica_id, incarnation))[0].seat.member

    def handle(self, event: Event, now: float) -> tuple[Instruction, ...]:
        """Return what is to be done now that ``event`` has happened, in order.

        Args:
            event: What happened.
            now: Seconds on one monotonic clock; never falls.
        """
        s = self._s
        s.out = []
        self._pass_time(now)
        if not isinstance(event, DiskFailed):
            s.undo = None
        _HANDLERS[type(event)](self, event)
        # Most events are heartbeats that change nothing; what they may change waits until due.
        if not isinstance(event, Beaten) or self._restless or s.now >= self._due:
            self._restless = False
            watch_processes(s)
            s.roster.leave_out(s.rifts.left_out(s.roster.living(), s.now), s.now)
            s.roster.departing = departing(s)
            convene(s)
            s.tell("")
            tell_members(s)
            self._due = self._next_moment()
            s.out.append(WakeAt(self._due))
        return tuple(s.out)

    def _pass_time(self, now: float) -> None:
        s = self._s
        if self._last is None:
            s.now = s.started = now
            s.episode = Episode(hold_until=now + s.settings.hold_limit_s)
            for seat in s.told():
                s.roster.expect(seat, now)
                s.out.append(ProbeProcess(seat))
        elif now - self._last > GAP_S:
            s.roster.excuse(now - self._last)
        self._last = s.now = now

    def _next_moment(self) -> float:
        """Return when something may be due that no event announces."""
        s, settings = self._s, self._s.settings
        moments = [s.retry_at, s.episode.hold_until, s.episode.last_call]
        moments += s.roster.pauses.values()
        moments += s.rifts.moments()
        if s.lost and s.standing is None:
            moments.append(s.started + settings.heartbeat_limit_s)
        for member, process in s.roster.processes.items():
            if member in s.roster.dead:
                continue
            moments.append(process.beat_at + settings.heartbeat_limit_s + INSTANT_S)
            if process.fenced_at is not None:
                moments.append(process.fenced_at + settings.fence_limit_s)
            if process.spared_at is not None:
                moments.append(process.spared_at + settings.renounce_limit_s)
            if process.join is not None:
                moments += [process.joined_at + settings.linger_s]
                moments += [process.joined_at + settings.join_limit_s]
        return min([s.now + LONGEST_SLEEP_S, *(moment for moment in moments if moment > s.now)])

    # -- events -------------------------------------------------------------------------------

    def _nothing(self, _event: Event) -> None:
        """Time passed, and that is all."""

    def _registered(self, event: Registered) -> None:
        renounce_older(self._s, event.seat)
        self._s.hear(event.standing)
        if event.seat.member not in self._s.roster.dead:
            self._s.roster.seen(event.seat, self._s.now)
            remind(self._s, event.seat.member)

    def _beaten(self, event: Beaten) -> None:
        s, member = self._s, event.member
        process = s.roster.processes.get(member)
        if process is None or member in s.roster.dead:
            return
        s.roster.beat(member, self._s.now)
        previous = s.previous
        if process.join is not None or previous is None or event.standing is None:
            return
        if event.standing == previous.epoch:
            self._restless = remind(s, member)
        elif event.standing < previous.epoch and (told := s.told_of(member)) is not None:
            if event.standing < told:
                s.announce_again(process.seat)
        elif incarnation_of(member) in s.roster.leaving:
            return  # it was let go, and has yet to end
        elif event.standing < previous.epoch and not s.finished:
            reason = f"epoch {event.standing} has ended, {previous.epoch} stands without it"
            s.out.append(Abort((member,), AbortExchange(event.standing, (), reason)))

    def _join_asked(self, event: JoinAsked) -> None:
        s, join, member = self._s, event.join, event.join.seat.member
        renounce_older(s, join.seat)
        if member in s.roster.dead:
            return
        process = s.roster.seen(join.seat, self._s.now)
        if join.number <= process.number:
            return  # repeated, or overtaken by a later one
        process.number = join.number
        s.hear(join.report.last_quorum)
        if refusal := self._refusal(member):
            s.refuse([process], refusal)
        elif s.finished or self._knows_not(join):
            s.announce_again(join.seat)
        else:
            s.rifts.hear(member, join.report, s.now)
            s.roster.ask(process, join, s.now)

    def _knows_not(self, join: Join) -> bool:
        """Tell whether the asker is in the standing quorum and was never told so."""
        report, told = join.report, self._s.told_of(join.seat.member)
        if told is None:
            return False
        known = [report.seen_epoch] if report.seen_epoch is not None else []
        known += [report.last_quorum.epoch] if report.last_quorum is not None else []
        return not known or max(known) < told

    def _refusal(self, member: MemberId) -> Refused | None:
        """Return why an asker will never get a quorum."""
        s, of = self._s, incarnation_of(member)
        if not s.roster.is_newest(of):
            newest = f"{of[0]}#{s.roster.newest[of[0]]}"
            return Refused(f"{member} was replaced by {newest}", "end this process")
        if why := s.roster.shut_out.get(of):
            return Refused(f"{member} {why}", "end this process")
        return s.stopped

    def _leave_asked(self, event: LeaveAsked) -> None:
        s, of = self._s, incarnation_of(event.member)
        if event.member in s.roster.processes:
            s.roster.leaving.setdefault(of, event.reason)
            wake(s, of)

    def _renounced(self, event: Renounced) -> None:
        renounce(self._s, event.member, event.reason)

    def _send_away(self, of: Incarnation, reason: str) -> None:
        """Ask a replica no more: it ends with its next ask, or with one that is outstanding."""
        roster = self._s.roster
        roster.shut_out[of] = reason
        asking = [process for process in roster.ranks(of) if process.join is not None]
        self._s.refuse(asking, Refused(f"{of[0]} {reason}", "end this process"))

    def _found_out(self, event: FoundOut) -> None:
        """Write it down once; who computes wrongly, or is slow and may be replaced, shall end."""
        s, found = self._s, event.finding
        process, of = s.roster.processes.get(found.about), incarnation_of(found.about)
        if process is None or of in s.roster.shut_out:
            return
        known = found.about in s.slow
        wrong = found.kind == "miscomputes"  # it knows as well, and may have ended by now
        if not wrong and (s.roster.lost(found.about) or (found.kind == "slow") is known):
            return
        s.out.append(NoteFinding(process.seat, found))
        if wrong:
            self._send_away(of, f"computes wrongly: {found.reason}")
        elif known:
            del s.slow[found.about]
        else:
            s.slow[found.about] = found
            if s.settings.replace_stragglers:
                self._send_away(of, f"is replaced: it {found.reason}")

    def _death_reported(self, event: DeathReported) -> None:
        self._s.roster.bury(event.member, event.reason, self._s.now, clean=event.clean)

    def _unreachable(self, event: Unreachable) -> None:
        roster = self._s.roster
        process = roster.processes.get(event.member)
        if process is not None and event.member not in roster.dead:
            roster.give_up(process, event.reason)

    def _disconnected(self, event: Disconnected) -> None:
        s, process = self._s, self._s.roster.processes.get(event.member)
        if process is None or s.roster.lost(event.member):
            return
        s.out.append(ProbeProcess(process.seat))
        if not process.seat.agent_address:
            # Nobody can look.  It may only have lost its connection: then it is back soon.
            self._soon_silent(process)

    def _host_gone(self, event: HostGone) -> None:
        process = self._s.roster.processes.get(event.member)
        if process is not None and not self._s.roster.lost(event.member):
            self._soon_silent(process)

    def _listener_gone(self, event: ListenerGone) -> None:
        """Count a process as silent at once, unless it was heard since its connection closed."""
        s, process = self._s, self._s.roster.processes.get(event.member)
        if process is not None and process.cut_at is not None:
            silent_s = s.settings.heartbeat_limit_s + INSTANT_S
            s.roster.cut(process, process.cut_at, heard_at=s.now - silent_s)

    def _soon_silent(self, process: Process) -> None:
        """Count a process as silent unless it is back within the time to reconnect."""
        s = self._s
        left_s = s.settings.heartbeat_limit_s - s.settings.reconnect_limit_s
        s.roster.cut(process, s.now, heard_at=s.now - left_s)

    def _hang_suspected(self, event: HangSuspected) -> None:
        s, process = self._s, self._s.roster.processes.get(event.member)
        if process is None:
            return
        if event.member in s.roster.unreachable:  # it may be within reach of a kill by now
            s.out.append(Fence(process.seat, event.reason, save_stacks=True))
        else:
            s.fence(process, event.reason, save_stacks=True)

    def _rebuild_asked(self, event: RebuildAsked) -> None:
        self._s.episode.rebuild = event.reason

    def _disk_failed(self, event: DiskFailed) -> None:
        take_back(self._s, event.reason)


_HANDLERS: dict[type, Callable[[QuorumMachine, Any], None]] = {
    Started: QuorumMachine._nothing,
    TimePassed: QuorumMachine._nothing,
    Registered: QuorumMachine._registered,
    Beaten: QuorumMachine._beaten,
    JoinAsked: QuorumMachine._join_asked,
    LeaveAsked: QuorumMachine._leave_asked,
    Renounced: QuorumMachine._renounced,
    FoundOut: QuorumMachine._found_out,
    DeathReported: QuorumMachine._death_reported,
    Unreachable: QuorumMachine._unreachable,
    Disconnected: QuorumMachine._disconnected,
    HostGone: QuorumMachine._host_gone,
    ListenerGone: QuorumMachine._listener_gone,
    HangSuspected: QuorumMachine._hang_suspected,
    RebuildAsked: QuorumMachine._rebuild_asked,
    DiskFailed: QuorumMachine._disk_failed,
}
