"""How simulated members meet: one of each pair dials, the other welcomes it.

The shape is that of ``collectives.forming``: who comes later in the order of names dials; the
kernel dials again after a second; a machine that has not answered for ``REACH_LIMIT_S`` is not
reached, and one whose process is gone refuses.  Nobody computes before all have met.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.simulation.engine import Process

from danaus.collectives.forming import REACH_LIMIT_S
from danaus.ft.step_events import Compute, ReductionBroken
from danaus.quorum.messages import Announcement, MemberId

DIAL_AGAIN_S = 1.0
FORM_LIMIT_S = 10.0


@dataclass
class Meeting:
    """Whom a member has yet to meet, and whose machines have not answered it."""

    began: float
    missing: set[MemberId]
    unanswered: set[MemberId]
    refused: set[MemberId] = field(default_factory=set)
    then: Compute | None = None


class MeetingMember(Process):
    """The part of a member process that forms groups."""

    world: Any
    who: MemberId
    group: Any
    to_peer: Callable[..., None]
    compute: Callable[[Compute], None]
    feed: Callable[..., None]
    unreached: tuple[MemberId, ...] = ()

    def meet(self, told: Announcement) -> None:
        """Dial whoever comes earlier, wait for whoever comes later."""
        peers = set(self.group.members) - {self.who}
        dialled = {peer for peer in peers if str(peer) < self.name}
        group = self.group
        self.unreached = ()
        if not peers:
            return
        group.meeting = Meeting(self.clock, peers, dialled)
        for peer in sorted(dialled):
            self.dial(group, peer)
            self.engine.after(DIAL_AGAIN_S, self.dial, group, peer)
        if dialled:
            self.later(REACH_LIMIT_S, self.reach_passed, group)
        self.later(FORM_LIMIT_S, self.form_passed, group)

    def dial(self, group: Any, peer: MemberId) -> None:
        """Send what opens a connection; it is lost where a wall stands."""
        if group.meeting and peer in group.meeting.unanswered:
            there = self.world.processes[peer].host
            if not self.engine.held_until(self.host, there):
                time = self.engine.delay(self.host, there)
                self.engine.after(time, self.is_dialled, group, peer)

    def is_dialled(self, group: Any, peer: MemberId) -> None:
        """Answer as the peer's kernel does, whatever the peer itself is at."""
        other = self.world.processes[peer]
        gone = not other.alive and other.vanished
        if not gone and not self.engine.held_until(other.host, self.host):
            time = self.engine.delay(other.host, self.host)
            self.engine.after(time, self.run, self.is_answered, group, peer, other.alive)

    def is_answered(self, group: Any, peer: MemberId, listens: bool) -> None:
        meeting = group.meeting
        if meeting is None or self.group is not group or peer not in meeting.unanswered:
            return
        if not listens:
            meeting.refused.add(peer)
            self.cannot_meet(f"{peer} cannot be dialled")
            return
        meeting.unanswered.discard(peer)
        self.to_peer(peer, group.announcement.epoch, "greets")

    def peer_greets(self, group: Any, peer: MemberId) -> None:
        self.to_peer(peer, group.announcement.epoch, "welcomes")
        self.peer_welcomes(group, peer)

    def peer_welcomes(self, group: Any, peer: MemberId) -> None:
        meeting = group.meeting
        if meeting is None:
            return
        meeting.missing.discard(peer)
        if not meeting.missing:
            self.has_met(group)

    def has_met(self, group: Any) -> None:
        meeting, group.meeting = group.meeting, None
        if meeting.then is not None:
            self.compute(meeting.then)

    def hears_end(self, meeting: Meeting, peer: MemberId) -> bool:
        """Tell whether there is a connection with a peer whose closing would be noticed."""
        waited_for = peer in meeting.missing and str(peer) > self.name
        return not waited_for and peer not in meeting.unanswered

    def reach_passed(self, group: Any) -> None:
        if self.group is group and group.meeting and group.meeting.unanswered:
            self.cannot_meet("its machine has not answered")

    def form_passed(self, group: Any) -> None:
        if self.group is group and group.meeting:
            self.cannot_meet("not all members came in time")

    def cannot_meet(self, reason: str) -> None:
        """Give up; there is nothing to compute in."""
        self.end_meeting(self.group)
        epoch, step = self.group.announcement.epoch, self.group.announcement.committed_step + 1
        self.feed(ReductionBroken(epoch, step, reason))

    def end_meeting(self, group: Any) -> None:
        """Remember whose machines could not be dialled."""
        meeting, group.meeting = group.meeting, None
        if meeting is None:
            return
        late = self.clock - meeting.began > REACH_LIMIT_S / 2
        names = meeting.refused | (meeting.unanswered if late else set())
        self.unreached = tuple(sorted(names))
