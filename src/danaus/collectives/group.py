"""What every group promises, and the checks that all of them share.

A group connects all member processes of one epoch.  Gradients are reduced among some of them
(the processes of one rank, in replica order); votes are exchanged among all.  A group that was
aborted, lost a peer or ran into a deadline is broken for good: the next epoch makes a new one.

Invariants (one contract suite for every implementation):
    Q-5: ``abort`` releases every local waiter at once, whatever the peers do.
    T-4: a reduction adds along the tree of its plan; the bits do not depend on the members.
    A call ends with its value, ``ExchangeAborted``, ``PeerLost`` or ``DeadlinePassed``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import torch
from torch import Tensor

from danaus.collectives.tree import ReductionPlan
from danaus.core.clock import Deadline
from danaus.core.errors import ConfigError

SMALL_LIMIT_BYTES = 1 << 20


class Group(Protocol):
    """Processes that exchange tensors and votes, and can leave at any moment.

    One thread at a time calls; ``abort`` may come from any other.
    """

    @property
    def epoch(self) -> str:
        """The quorum's epoch (Q-1)."""
        ...

    @property
    def me(self) -> str:
        """This process's name."""
        ...

    @property
    def names(self) -> tuple[str, ...]:
        """Every member process, in order."""
        ...

    def reduce_tree(
        self,
        partials: Sequence[Tensor],
        out: Tensor,
        *,
        plan: ReductionPlan,
        subset: Sequence[str],
        deadline: Deadline,
    ) -> None:
        """Sum the leaves of ``plan`` over the members of ``subset``; each gets the sum.

        Args:
            partials: Mine, in the order of ``plan.nodes`` of my place: flat fp32, not changed.
            out: ``[num_elements]`` fp32; must not share memory with a partial.
            plan: The same at all members; participant ``i`` of it is ``subset[i]``.
            subset: Members that take part, in an order that all agree on; I am one of them.
            deadline: When to give up.

        Raises:
            ExchangeAborted: ``abort`` was called.
            PeerLost: A member of the subset went away or sent damaged bytes.
            DeadlinePassed: Not done in time.
        """
        ...

    def exchange_small(
        self, payload: bytes, *, deadline: Deadline, subset: Sequence[str] | None = None
    ) -> dict[str, bytes]:
        """Give ``payload`` to every member and return what each gave, by name, mine included.

        Args:
            payload: At most ``SMALL_LIMIT_BYTES``; each member's may differ.
            deadline: When to give up.
            subset: The members that take part; all unless given.

        Raises:
            ExchangeAborted: ``abort`` was called.
            PeerLost: A member went away or sent damaged bytes.
            DeadlinePassed: Not done in time.
        """
        ...

    def exchange_bytes(
        self,
        give: Mapping[str, memoryview],
        take: Mapping[str, memoryview],
        *,
        deadline: Deadline,
    ) -> None:
        """Send bytes to some members and fill buffers with what others send; any sizes.

        Whoever gives to a member is among those that it takes from, with a buffer of that size.

        Args:
            give: What each of them gets, by name; not changed.
            take: Where what each of them gives goes, by name.
            deadline: When to give up.

        Raises:
            ExchangeAborted: ``abort`` was called.
            PeerLost: One of them went away, or sent damaged bytes or another size.
            DeadlinePassed: Not done in time.
        """
        ...

    def received(self) -> dict[str, bytes]:
        """Return what the last ``exchange_small`` has received, also if it broke."""
        ...

    def abort(self, reason: str) -> None:
        """Leave whatever this process is blocked in, now and from now on; from any thread."""
        ...

    def close(self) -> None:
        """Give everything back; never raises, may be called twice."""
        ...


def check_reduction(
    me: str,
    partials: Sequence[Tensor],
    out: Tensor,
    *,
    plan: ReductionPlan,
    subset: Sequence[str],
) -> int:
    """Return my place in ``subset``.

    Raises:
        ConfigError: The arguments of ``Group.reduce_tree`` do not fit together.
    """
    if me not in subset or len(set(subset)) != len(subset) or len(plan.nodes) != len(subset):
        raise ConfigError(
            what=f"{me} cannot reduce among {list(subset)} with a plan for {len(plan.nodes)}",
            needed="a plan for as many members, each named once, this one included",
        )
    place = list(subset).index(me)
    if len(partials) != len(plan.nodes[place]):
        raise ConfigError(
            what=f"{me} brings {len(partials)} partials",
            needed=f"one for each of {list(plan.nodes[place])}",
        )
    for tensor in (*partials, out):
        if (
            tensor.dtype != torch.float32
            or tensor.device.type != "cpu"
            or not tensor.is_contiguous()
            or tensor.numel() != out.numel()
        ):
            raise ConfigError(
                what=f"cannot reduce {list(tensor.shape)} {tensor.dtype} on {tensor.device}",
                needed=f"contiguous torch.float32 of {out.numel()} elements on the CPU",
            )
    if out.numel() and any(tensor.data_ptr() == out.data_ptr() for tensor in partials):
        raise ConfigError(what="a partial and the output share memory", needed="two buffers")
    return place


def check_small(payload: bytes) -> None:
    """Raise ``ConfigError`` for a payload that is too long for ``exchange_small``."""
    if len(payload) > SMALL_LIMIT_BYTES:
        raise ConfigError(
            what=f"a payload of {len(payload)} bytes", needed=f"at most {SMALL_LIMIT_BYTES}"
        )


def check_bytes(me: str, peers: Sequence[str]) -> None:
    """Raise ``ConfigError`` for an exchange of bytes with oneself."""
    if me in peers:
        raise ConfigError(what=f"{me} would exchange bytes with itself", needed="other members")
