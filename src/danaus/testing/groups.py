"""Groups for tests: members as threads of this process, over memory, socket files, TCP or TLS.

Owns what a test needs to run the contract suite of ``collectives.group`` over an implementation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

from danaus.collectives.forming import Rendezvous
from danaus.collectives.meeting import MeetingPoint
from danaus.collectives.socket_group import SocketGroup
from danaus.collectives.tree import ReductionPlan, plan_reduction
from danaus.core.clock import Deadline
from danaus.testing.addresses import own_host
from danaus.wire.address import Address
from danaus.wire.blocking import PeerListener
from danaus.wire.secret import Secret

LIMIT_S = 20.0


def soon(limit_s: float = LIMIT_S) -> Deadline:
    """Return a deadline that a test never reaches unless it is broken."""
    return Deadline.after(limit_s)


def member_names(num: int) -> list[str]:
    """Return the names of ``num`` replicas of one process each."""
    return [f"{letter}/0#0" for letter in "abcdefgh"[:num]]


def plan_one_leaf_each(num_shares: int) -> ReductionPlan:
    """Return the plan of a plain sum: each of ``num_shares`` members brings one leaf."""
    return plan_reduction(num_shares, tuple(range(i, i + 1) for i in range(num_shares)))


class Member:
    """A call in a thread of its own, whose end a test looks at."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self._pool = ThreadPoolExecutor(1)
        self._ending = self._pool.submit(call)
        self._pool.shutdown(wait=False)

    def ended_within(self, limit_s: float) -> bool:
        """Tell whether the call ends in time."""
        return bool(wait([self._ending], limit_s).done)

    def outcome(self, limit_s: float = LIMIT_S) -> Any:
        """Return the value, or the exception as a value; fail if the call is still going on."""
        assert self.ended_within(limit_s), f"still blocked after {limit_s} s"
        error = self._ending.exception()
        return self._ending.result() if error is None else error


def together(*calls: Callable[[], Any]) -> list[Any]:
    """Run each call in a thread of its own; return the values, or raise the first exception."""
    outcomes = [member.outcome() for member in [Member(call) for call in calls]]
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome
    return outcomes


class Site:
    """The listening end of one process.

    Args:
        kind: ``unix``, ``tcp``, or ``tls``, which takes an address that others could dial.
        folder: Where socket files go.
        secret: The job's secret.
        index: Tells the sites of a folder apart.
    """

    def __init__(self, kind: str, folder: Path, secret: Secret, *, index: int = 0) -> None:
        self.secret = secret
        host = own_host() if kind == "tls" else "127.0.0.1"
        place = f"unix:{folder}/{index}.sock" if kind == "unix" else f"tcp:{host}:0"
        self.listener = PeerListener(Address.parse(place), secret)
        self.meeting = MeetingPoint(self.listener)
        self._groups: list[SocketGroup] = []

    @property
    def address(self) -> Address:
        """Where it is dialled."""
        return self.listener.address

    def group(
        self, me: str, members: Mapping[str, Address], epoch: str = "1.1", **options: Any
    ) -> SocketGroup:
        """Return a group that is not formed yet."""
        group = SocketGroup(self.meeting, self.secret, Rendezvous(epoch, me, members), **options)
        self._groups.append(group)
        return group

    def close(self) -> None:
        """Stop listening; close the groups."""
        for group in self._groups:
            group.close()
        self.meeting.close()
        self.listener.close()


def form_all(sites: Sequence[Site], names: Sequence[str], **options: Any) -> list[SocketGroup]:
    """Return one formed group per site, as its member sees it."""
    members = {name: site.address for name, site in zip(names, sites, strict=True)}
    groups = [site.group(name, members, **options) for name, site in zip(names, sites, strict=True)]
    together(*[lambda g=group: g.form(soon()) for group in groups])
    return groups
