"""Sending to many through a tree of processes, and asking those again that it did not reach (A-11).

Owns the first sender's side; who passes on is ``tree``'s decision, passing on is ``relays``' work.
On the connections' loop.

Invariants:
    A message leaves this process ``DIRECT`` times at most, and ``FAN_OUT`` times if it is for more;
        receivers that are started again by a policy, or are out of reach, are sent to besides.
    A-1: it carries its number for each receiver, whatever route it takes.
    A-4: each point comes out once: what comes after is dropped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from danaus.actor.cast_messages import Cast, CastTo, Gathered, How, Point, PointAnswer
from danaus.actor.failure import Fault
from danaus.actor.identity import ProcessRef
from danaus.actor.links import Link, Parts, Pending
from danaus.actor.process_messages import Deliver, DeliverAgain, Raised
from danaus.actor.targets import Way
from danaus.actor.tree import FAN_OUT, Branch, plan

Numbered = tuple[int, Way, int]  # the place in the call, the way there, the message's number


class CastUser(Protocol):
    """The process, as its casts see it."""

    def link(self, ref: ProcessRef) -> Link:
        """Return the link to a process."""


class Waiting(Protocol):
    """Who waits for the answers, as ``gathers.Gathering``."""

    def point(self, at: int) -> Pending: ...

    def posted(self, at: int, link: Link, call: int) -> None: ...


@dataclass(frozen=True)
class Casting:
    """One message for many.

    Args:
        user: This process.
        messages: For each point, its place, the way there and the number.
        parts: The arguments.
        waiting: Who waits for the answers; None: nobody.
    """

    user: CastUser
    messages: Sequence[Numbered]
    parts: Parts
    waiting: Waiting | None

    def send(self) -> Sequence[Numbered]:
        """Send; return what is to be sent directly: few, or such that a tree does not reach."""
        through = [each for each in self.messages if self._may_go_through(each[1].ref)]
        if len({way.ref for _, way, _ in through}) <= FAN_OUT:
            return self.messages
        for branch in plan(tuple((way.ref.agent_address, way.ref) for _, way, _ in through)):
            self._send_branch(branch, through)
        gone_through = {at for at, _, _ in through}
        return [each for each in self.messages if each[0] not in gone_through]

    def _may_go_through(self, ref: ProcessRef) -> bool:
        """Tell whether others can find a process, and it is the one that first had its place."""
        if not ref.agent_address or ref.restarts:
            return False
        link = self.user.link(ref)
        return not link.fault_why and not link.life

    def _send_branch(self, branch: Branch[ProcessRef], through: Sequence[Numbered]) -> None:
        to = _said(branch, through)
        mesh_id, _, _, sender, endpoint, place = through[branch.points[0]][1].key
        facts = (mesh_id, endpoint, sender, self.waiting is not None)
        link = self.user.link(branch.process)
        mine = {through[at][0]: through[at] for at in branch.all_points}
        pending = _BranchPending(self, mine)
        extent = (place.axes, place.sizes)
        call = link.post(lambda call: Cast(call, *facts, to, *extent), self.parts, pending)
        if self.waiting is not None:
            for at in mine:
                self.waiting.posted(at, link, call)

    def ask_again(self, message: Numbered) -> None:
        """Send to one directly what may have reached it or not."""
        at, way, number = message
        mesh_id, rank, incarnation, sender, endpoint, place = way.key
        link = self.user.link(way.ref)
        pending = self.waiting.point(at) if self.waiting is not None else None
        if link.life:  # it would be another message to the receiver
            if pending is not None:
                pending.gone("it was out of reach, and what was sent to it is lost", None)
            return
        facts = (mesh_id, rank, incarnation, sender, number, endpoint, place)
        call = link.post(lambda call: DeliverAgain(Deliver(call, *facts)), self.parts, pending)
        if self.waiting is not None:
            self.waiting.posted(at, link, call)

    def came_out(self, answer: PointAnswer, parts: Parts) -> None:
        """Tell who waits how one point came out."""
        if self.waiting is None:
            return
        pending = self.waiting.point(answer.at)
        if answer.how is How.RETURNED:
            pending.returned(parts)
        elif answer.how is How.RAISED:
            actor, endpoint, said, text = answer.words
            pending.raised(Raised(0, actor, endpoint, said, text), parts)
        else:
            pending.gone(answer.words[-1], None)


class _BranchPending:
    """Waits for what comes back from one branch.

    Args:
        casting: Whose.
        messages: What was sent there, by place in the call; those that have not come out.
    """

    any_thread = False

    def __init__(self, casting: Casting, messages: dict[int, Numbered]) -> None:
        self._casting = casting
        self._left = messages

    def gathered(self, message: Gathered, parts: Parts) -> None:
        start = 0
        lost: list[Numbered] = []
        for each in message.answers:
            end = start + each.num_parts
            mine = self._left.pop(each.at, None)
            if mine is not None and each.how is How.LOST:
                lost.append(mine)
            elif mine is not None:
                self._casting.came_out(each, parts[start:end])
            start = end
        if message.is_last and self._casting.waiting is not None:
            lost.extend(self._left.values())
            self._left = {}
        self._ask(lost)

    def returned(self, parts: Parts) -> None:
        self._ask_all()

    def raised(self, message: Raised, parts: Parts) -> None:
        self._ask_all()

    def gone(self, why: str, fault: Fault | None) -> None:
        self._ask_all()

    def _ask_all(self) -> None:
        left, self._left = self._left, {}
        self._ask(left.values())

    def _ask(self, messages: Iterable[Numbered]) -> None:
        # Not from within: whoever tells of an end is busy, and knows no more of it than this.
        loop = asyncio.get_running_loop()
        for numbered in messages:
            loop.call_soon(self._casting.ask_again, numbered)


def _said(branch: Branch[ProcessRef], through: Sequence[Numbered]) -> CastTo:
    points = []
    for each in branch.points:
        at, way, number = through[each]
        _, rank, incarnation, *_ = way.key
        points.append(Point(at, rank, incarnation, number))
    ref = branch.process
    below = tuple(_said(each, through) for each in branch.below)
    return CastTo(ref.process_id, ref.agent_address, ref.address, ref.job, tuple(points), below)
