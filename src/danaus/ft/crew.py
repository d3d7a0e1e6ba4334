"""The members of one quorum, as one member process works with them: reduce and vote.

Owns the group of an epoch, the share of leaves of each replica, and the buffers of the reduction.
The reduced gradient outlives its group: it is kept until the next reduction (T-1).
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable

import msgspec
import torch
from torch import Tensor

from danaus.collectives.fingerprint import digest
from danaus.collectives.finite import is_finite
from danaus.collectives.folding import LeafFolder, LeafSum, Leaves
from danaus.collectives.forming import Rendezvous
from danaus.collectives.group import Group
from danaus.collectives.meeting import MeetingPoint
from danaus.collectives.socket_group import SocketGroup
from danaus.collectives.tree import ReductionPlan, assign, plan_reduction, plan_shares
from danaus.collectives.tree_exchange import Workspace
from danaus.core.clock import Deadline
from danaus.core.errors import (
    DeadlinePassed,
    ExchangeAborted,
    InternalError,
    PeerLost,
    StaleQuorum,
)
from danaus.ft.observer import Shares
from danaus.ft.step_events import Ballot
from danaus.ft.step_log import LoggedStep
from danaus.ft.step_plan import StepPlan
from danaus.quorum.messages import Announcement, Epoch, MemberId
from danaus.wire.address import Address
from danaus.wire.blocking import PeerListener
from danaus.wire.secret import Secret

FORM_LIMIT_S = 10.0
EXCHANGE_LIMIT_S = 3600.0
"""An exchange waits for the slowest member's compute; who hangs is judged by progress (P-3)."""


_NUMBER = struct.Struct("<d")
_decode = msgspec.msgpack.Decoder(Ballot).decode
BROKEN = (ExchangeAborted, PeerLost, DeadlinePassed, StaleQuorum)
"""What ends a group: it cannot go on, and the next quorum makes another."""


class Crew:
    """Form the group of an announcement, reduce among one rank, vote among all.

    Args:
        listener: Where peers dial this process.
        secret: The job's.
        me: This process.
        plan: What a step is.
        on_collective: Called with a number that grows with each exchange of a group (P-3).
        aborted: Tells why an epoch has ended, None while it stands.
    """

    def __init__(
        self,
        listener: PeerListener,
        secret: Secret,
        me: MemberId,
        *,
        plan: StepPlan,
        on_collective: Callable[[int], None],
        aborted: Callable[[Epoch], str | None],
    ) -> None:
        self._secret, self._me = secret, me
        self._steps, self._num_leaves = plan, 0
        self._on_collective, self._aborted = on_collective, aborted
        self._meeting = MeetingPoint(listener)
        self._workspace: Workspace | None = None
        self._lock = threading.Lock()
        self._group: Group | None = None
        self._epoch: Epoch | None = None
        self._folder: Leaves | None = None
        self._reduced = torch.empty(0)
        self.digest = ""
        """Of the gradient last reduced."""
        self._plan: ReductionPlan | None = None
        self._subset: tuple[str, ...] = ()
        self._siblings: tuple[str, ...] = ()
        self.is_formed = False
        self._members: dict[str, MemberId] = {}
        self.replica_ids: tuple[str, ...] = ()
        self.unreached: tuple[MemberId, ...] = ()
        """Members of the group that was to be formed last whose machines did not answer."""
        self.form_limit_s, self.exchange_limit_s = FORM_LIMIT_S, EXCHANGE_LIMIT_S
        self.run = range(0)
        self.shares = Shares((), {})
        self.hosts: dict[str, str] = {}
        """Where each replica is, by the address of its host agent."""

    # -- the group ---------------------------------------------------------------------------

    def form(self, told: Announcement) -> None:
        """Connect with every member of ``told``.

        Raises:
            BROKEN: Somebody is not there, or ``told`` has ended meanwhile.
        """
        self.leave()
        self._seat(told)
        self._share()
        peers = {str(seat.member): Address.parse(seat.data_address) for seat in told.members}
        group = SocketGroup(
            self._meeting,
            self._secret,
            Rendezvous(str(told.epoch), str(self._me), peers),
            workspace=self._workspace,
            on_collective=self._on_collective,
        )
        with self._lock:
            self._group, self._epoch = group, told.epoch
        self._workspace = group.workspace
        if (reason := self._aborted(told.epoch)) is not None:
            group.abort(reason)
        try:
            group.form(Deadline.after(self.form_limit_s))
            self.is_formed = True
        finally:
            self.unreached = tuple(self._members[name] for name in sorted(group.unreached))

    def _seat(self, told: Announcement) -> None:
        """Settle who reduces with whom, the same at every member."""
        self.replica_ids = told.replica_ids
        self._members = {str(seat.member): seat.member for seat in told.members}
        self._subset = tuple(
            str(member)
            for replica_id in self.replica_ids
            for member in self._members.values()
            if (member.replica_id, member.rank) == (replica_id, self._me.rank)
        )
        self._siblings = tuple(
            str(member)
            for member in sorted(self._members.values())
            if member.replica_id == self._me.replica_id
        )
        self.hosts = {seat.member.replica_id: seat.agent_address for seat in told.members}

    def _share(self) -> None:
        """Settle who computes what, the same at every member (T-4)."""
        self._num_leaves = self._steps.leaves_of(len(self.replica_ids))
        runs = assign(self._num_leaves, len(self.replica_ids))
        exact = self._steps.bits == "exact"
        self._plan = plan_reduction(self._num_leaves, runs) if exact else plan_shares(runs)
        self.run = runs[self.replica_ids.index(self._me.replica_id)]
        by_replica = dict(zip(self.replica_ids, runs, strict=True))
        self.shares = Shares(tuple(sorted(self._members.values())), by_replica)

    def leave(self) -> None:
        """Close the group's connections, so that peers blocked on this member are released."""
        with self._lock:
            group, self._group, self._epoch = self._group, None, None
        self.is_formed = False
        if group is not None:
            group.close()

    def close(self) -> None:
        """Leave, and be found by no peer any more."""
        self.leave()
        self._meeting.close()

    def abort(self, epoch: Epoch | None, reason: str) -> None:
        """Release the training thread from the group of ``epoch`` (None: any); from any thread."""
        with self._lock:
            if self._group is not None and epoch in (None, self._epoch):
                self._group.abort(reason)

    # -- a step ------------------------------------------------------------------------------

    def folder(self, num_elements: int) -> Leaves:
        """Return the folder of this replica's leaves, begun anew."""
        if self._folder is None:
            make = LeafFolder if self._steps.bits == "exact" else LeafSum
            self._folder = make(num_elements)
            self._reduced = torch.empty(num_elements)
        self._folder.begin(self.run, self._num_leaves)
        return self._folder

    def reduce(self) -> str:
        """Sum the step's leaves over all replicas; return the digest of the sum.

        Raises:
            BROKEN: The exchange did not finish.
        """
        if self._folder is None or self._plan is None:
            raise InternalError("T-4", "a reduction without leaves")
        self._standing().reduce_tree(
            self._folder.partials(),
            self._reduced,
            plan=self._plan,
            subset=self._subset,
            deadline=Deadline.after(self.exchange_limit_s),
        )
        self.digest = digest(self._reduced)
        return self.digest

    def gather(self, number: float) -> tuple[float, ...]:
        """Give a number to every rank of this replica; return each one's, by rank.

        Raises:
            BROKEN: The exchange did not finish.
        """
        if len(self._siblings) == 1:
            return (number,)
        given = self._standing().exchange_small(
            _NUMBER.pack(number),
            deadline=Deadline.after(self.exchange_limit_s),
            subset=self._siblings,
        )
        return tuple(_NUMBER.unpack(given[name])[0] for name in self._siblings)

    @property
    def reduced(self) -> Tensor:
        """The gradient last reduced, ``[P]`` float32; kept until the next reduction."""
        return self._reduced

    def summed(self, step: int, epoch: Epoch, measures: tuple[float, ...]) -> LoggedStep:
        """Return the gradient last reduced, with all that applying it takes."""
        return LoggedStep(step, epoch, self._reduced, measures, self.digest)

    def unfit_share(self) -> str:
        """Return in words that what this replica brought to the reduction is not finite, if so."""
        if self._folder is None or all(map(is_finite, self._folder.partials())):
            return ""
        first, last = self.run.start, self.run.stop - 1
        leaves = f"leaf {first}" if first == last else f"leaves {first} to {last}"
        return f"its own share, {leaves}, is not finite"

    def vote(self, ballot: Ballot) -> dict[MemberId, Ballot]:
        """Give every member this ballot and return all of theirs.

        Raises:
            BROKEN: Not all came; ``votes_seen`` has those that did.
        """
        given = self._standing().exchange_small(
            msgspec.msgpack.encode(ballot), deadline=Deadline.after(self.exchange_limit_s)
        )
        return self._ballots(given)

    def votes_seen(self) -> dict[MemberId, Ballot]:
        """Return the ballots of the last vote that came, also if it broke."""
        return self._ballots(self._group.received()) if self._group is not None else {}

    def _ballots(self, given: dict[str, bytes]) -> dict[MemberId, Ballot]:
        return {self._members[name]: _decode(payload) for name, payload in given.items()}

    def _standing(self) -> Group:
        group = self._group
        if group is None:
            raise ExchangeAborted("the group is closed")
        return group
