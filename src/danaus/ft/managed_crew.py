"""The members of a quorum as the ``Manager`` works with them: any tensors, in any number of calls.

Owns what the calls of one step exchange, whose tensors count, and the digest that is voted on.

Invariants:
    T-1: the digest is over everything that was reduced in the step, in the order of the calls.
    T-6: a replica whose forward began with an older state counts for nothing, in one step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import xxhash
from torch import Tensor

from danaus.collectives import moving
from danaus.collectives.fingerprint import digest
from danaus.collectives.quantising import Kind
from danaus.collectives.reductions import Averager, Operation
from danaus.core.clock import Deadline
from danaus.core.errors import ConfigError
from danaus.ft.crew import BROKEN, Crew
from danaus.ft.observer import Shares
from danaus.quorum.messages import Announcement

_ABLE, _UNABLE = b"+", b"-"


class ManagedCrew(Crew):
    """Reduce among one rank of each replica what the loop brings; vote among all.

    Args:
        choose: Says who contributes, of the replicas of a quorum and those that are not able to.
        is_able: Tells, as a group is formed, whether this process holds the state of its step.
        limit_s: How long forming a group, or an exchange, may take.
        given: What every crew is given.
    """

    def __init__(
        self,
        *given: Any,
        choose: Callable[[Sequence[str], frozenset[str]], tuple[str, ...]],
        is_able: Callable[[], bool],
        limit_s: float,
        **options: Any,
    ) -> None:
        super().__init__(*given, **options)
        self._choose, self._is_able = choose, is_able
        self.form_limit_s = self.exchange_limit_s = limit_s
        self._unable: frozenset[str] = frozenset()
        self._hashed = xxhash.xxh3_64()
        self._averager: Averager | None = None
        self.contributors: tuple[str, ...] = ()

    # -- what a participant asks ------------------------------------------------------------------

    def form(self, told: Announcement) -> None:
        """Connect with every member of ``told``; learn who is able to contribute at once.

        Raises:
            BROKEN: Somebody is not there, or ``told`` has ended meanwhile.
        """
        super().form(told)
        try:
            word = _ABLE if self._is_able() else _UNABLE
            given = self._standing().exchange_small(word, deadline=self._deadline())
        except BROKEN:
            self.is_formed = False
            raise
        self._unable = frozenset(
            self._members[name].replica_id for name, said in given.items() if said == _UNABLE
        )
        self._averager = Averager(self._standing(), self._subset)

    def _share(self) -> None:
        """Nothing is shared out: each replica's batch is its own."""
        self.shares = Shares(tuple(sorted(self._members.values())), {})

    def reduce(self) -> str:
        """Return the digest of all that the step's calls have reduced."""
        return self._hashed.hexdigest()

    def gather(self, number: float) -> tuple[float, ...]:
        """Nothing of a gradient has to be known to the other ranks."""
        return (number,)

    # -- a step -----------------------------------------------------------------------------------

    def begin_step(self) -> None:
        """Forget the calls of the step before; settle who contributes."""
        self._hashed.reset()
        self.contributors = self._choose(self.replica_ids, self._unable)
        self._unable = frozenset()

    @property
    def replica_rank(self) -> int:
        """This replica's place in the quorum."""
        return self.replica_ids.index(self._me.replica_id)

    @property
    def participating_rank(self) -> int | None:
        """This replica's place among those that contribute."""
        mine = self._me.replica_id
        return self.contributors.index(mine) if mine in self.contributors else None

    # -- calls: each may raise what ends a group (BROKEN) -----------------------------------------

    def average(
        self, tensors: Sequence[Tensor], operation: Operation, kind: Kind | None = None
    ) -> None:
        """Replace each tensor by its reduction over those that contribute."""
        averager = self._averager
        assert averager is not None  # a step begins where a group is formed
        if not self.contributors:
            raise ConfigError("nobody contributes to this step", "a replica that does")
        averager.average(
            tensors,
            deadline=self._deadline(),
            contributors=[self._name(self.replica_ids.index(name)) for name in self.contributors],
            operation=operation,
            kind=kind,
        )
        for tensor in tensors:
            self._count(tensor)

    def allgather(self, tensor: Tensor) -> list[Tensor]:
        """Return every replica's tensor, by ``replica_rank``."""
        found = moving.gather(
            self._standing(), tensor, subset=self._subset, deadline=self._deadline()
        )
        for each in found:
            self._count(each)
        return found

    def broadcast(self, tensor: Tensor, root: int) -> None:
        """Overwrite the tensor with that of the replica of rank ``root``."""
        moving.broadcast(
            self._standing(),
            tensor,
            root=self._name(root),
            subset=self._subset,
            deadline=self._deadline(),
        )
        self._count(tensor)

    def send(self, tensor: Tensor, to: int) -> None:
        """Give a tensor to the replica of rank ``to``; only those two know of it."""
        moving.send(self._standing(), tensor, to=self._name(to), deadline=self._deadline())

    def receive(self, tensor: Tensor, source: int) -> None:
        """Overwrite the tensor with what the replica of rank ``source`` sends."""
        moving.receive(
            self._standing(), tensor, source=self._name(source), deadline=self._deadline()
        )

    def _name(self, replica_rank: int) -> str:
        if not 0 <= replica_rank < len(self._subset):
            raise ConfigError(
                f"replica_rank {replica_rank} is none of this quorum",
                f"0 to {len(self._subset) - 1}",
            )
        return self._subset[replica_rank]

    def _count(self, tensor: Tensor) -> None:
        self._hashed.update(digest(tensor).encode())

    def _deadline(self) -> Deadline:
        return Deadline.after(self.exchange_limit_s)
