"""A group inside one process: each member is a thread.

Keeps the contract of ``collectives.group``; instead of sockets there is one lock.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence

from torch import Tensor

from danaus.collectives.combining import Combiner
from danaus.collectives.group import check_bytes, check_reduction, check_small
from danaus.collectives.tree import ReductionPlan
from danaus.core.clock import Deadline
from danaus.core.errors import (
    ConfigError,
    DanausError,
    DeadlinePassed,
    ExchangeAborted,
    PeerLost,
)

_Given = tuple[Tensor, ...] | bytes | bytearray


class MemoryHub:
    """What the members of one epoch share.

    Args:
        names: Every member, in order.
        epoch: The epoch's name.
    """

    def __init__(self, names: Sequence[str], epoch: str = "1.1") -> None:
        self.names = tuple(names)
        self.epoch = epoch
        self.changed = threading.Condition()
        # (giver, taker) -> what was given and not yet taken, oldest first
        self.lanes: dict[tuple[str, str], list[_Given]] = {
            (a, b): [] for a in names for b in names if a != b
        }
        self.gone: dict[str, str] = {}

    def group(self, me: str, on_collective: Callable[[int], None] | None = None) -> MemoryGroup:
        """Return the group as ``me`` sees it."""
        return MemoryGroup(self, me, on_collective)

    def kill(self, name: str) -> None:
        """Let a member disappear, as a SIGKILL would."""
        with self.changed:
            self.gone.setdefault(name, "it was killed")
            self.changed.notify_all()


class MemoryGroup:
    """One member's side of a ``MemoryHub``.

    Args:
        hub: What the members share.
        me: This member's name.
        on_collective: Called with a number that grows with each exchange.
    """

    def __init__(
        self, hub: MemoryHub, me: str, on_collective: Callable[[int], None] | None = None
    ) -> None:
        if me not in hub.names:
            raise ConfigError(what=f"{me} is no member of epoch {hub.epoch}")
        self._hub = hub
        self._me = me
        self._on_collective = on_collective
        self._number = 0
        self._broken: DanausError | None = None
        self._received: dict[str, bytes] = {}
        self._combiner = Combiner()

    @property
    def epoch(self) -> str:
        return self._hub.epoch

    @property
    def me(self) -> str:
        return self._me

    @property
    def names(self) -> tuple[str, ...]:
        return self._hub.names

    def reduce_tree(
        self,
        partials: Sequence[Tensor],
        out: Tensor,
        *,
        plan: ReductionPlan,
        subset: Sequence[str],
        deadline: Deadline,
    ) -> None:
        check_reduction(self._me, partials, out, plan=plan, subset=subset)
        given = tuple(tensor.reshape(-1).clone() for tensor in partials)
        taken = self._exchange(given, subset, deadline)
        held: dict[str, tuple[Tensor, ...]] = {self._me: given}
        for name, each in taken.items():
            if not isinstance(each, tuple) or any(t.numel() != out.numel() for t in each):
                raise self._break(PeerLost(name, "it takes part in another exchange"))
            held[name] = each
        values = [held[subset[who]][k] for who, k in plan.slots]
        # What others gave is shared with every taker: nothing of it may be written.
        self._combiner.combine(values, [False] * len(values), plan.adds, out=out.reshape(-1))

    def exchange_small(
        self, payload: bytes, *, deadline: Deadline, subset: Sequence[str] | None = None
    ) -> dict[str, bytes]:
        check_small(payload)
        chosen = self.names if subset is None else tuple(subset)
        self._received = {self._me: bytes(payload)}
        for name, each in self._exchange(bytes(payload), chosen, deadline).items():
            if not isinstance(each, bytes):
                raise self._break(PeerLost(name, "it takes part in another exchange"))
        return {name: self._received[name] for name in chosen}

    def exchange_bytes(
        self,
        give: Mapping[str, memoryview],
        take: Mapping[str, memoryview],
        *,
        deadline: Deadline,
    ) -> None:
        check_bytes(self._me, [*give, *take])
        given = {name: bytearray(view) for name, view in give.items()}
        for name, each in self._swap(given, tuple(take), deadline).items():
            if not isinstance(each, bytearray) or len(each) != len(take[name]):
                raise self._break(PeerLost(name, "it takes part in another exchange"))
            take[name][:] = each

    def received(self) -> dict[str, bytes]:
        return dict(self._received)

    def _exchange(
        self, given: _Given, subset: Sequence[str], deadline: Deadline
    ) -> dict[str, _Given]:
        peers = [name for name in subset if name != self._me]
        return self._swap(dict.fromkeys(peers, given), peers, deadline)

    def _swap(
        self, given: Mapping[str, _Given], peers: Sequence[str], deadline: Deadline
    ) -> dict[str, _Given]:
        """Leave something for some, and take what others leave."""
        hub = self._hub
        taken: dict[str, _Given] = {}
        with hub.changed:
            self._check()
            self._number += 1
            if self._on_collective is not None:
                self._on_collective(self._number)
            for name, each in given.items():
                hub.lanes[self._me, name].append(each)
            hub.changed.notify_all()
            while len(taken) < len(peers):
                for name in peers:
                    lane = hub.lanes[name, self._me]
                    if name in taken:
                        continue
                    if lane:
                        taken[name] = each = lane.pop(0)
                        if isinstance(each, bytes):
                            self._received[name] = each
                    elif name in hub.gone:
                        raise self._break(PeerLost(name, hub.gone[name]))
                if len(taken) < len(peers):
                    self._wait(deadline)
        return taken

    def _check(self) -> None:
        if self._broken is not None:
            raise self._broken

    def _wait(self, deadline: Deadline) -> None:
        """Wait for a change; the hub's lock is held."""
        if not self._hub.changed.wait(deadline.remaining_s()) and deadline.passed:
            raise self._break(DeadlinePassed("the other members of the group", deadline.limit_s))
        self._check()

    def _break(self, error: DanausError) -> DanausError:
        """Make ``error`` the end of this member and let the others know."""
        with self._hub.changed:
            if self._broken is None:
                self._broken = error
                self._hub.gone.setdefault(self._me, "it left the group")
                self._hub.changed.notify_all()
            return self._broken

    def abort(self, reason: str) -> None:
        self._break(ExchangeAborted(reason))

    def close(self) -> None:
        self.abort("the group was closed")
