"""A ``Manager`` without a service: its replicas are threads of one process, always the same ones.

Owns what loops that call a manager can be tried with in a test.  Steps commit at all replicas or at
none, as under the real one; nobody joins and nobody leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

from danaus.collectives import moving
from danaus.collectives.group import Group
from danaus.collectives.quantising import Kind, kind_of
from danaus.collectives.reductions import Averager
from danaus.core.clock import Deadline
from danaus.core.errors import ConfigError
from danaus.ft.managed_calls import operation_of
from danaus.ft.pending import Pending

_LIMIT_S = 20.0
_PREPARED = b"prepared"


class MemoryManager:
    """One replica's side.

    Args:
        group: Of all replicas, one process each.
        spares: Names of the members that contribute nothing.
    """

    def __init__(self, group: Group, spares: Sequence[str] = ()) -> None:
        self._group = group
        self._contributors = [name for name in group.names if name not in spares]
        self._averager = Averager(group, group.names)
        self._begun = False
        self._num_calls = self._step = 0
        self._error: Exception | None = None
        self.state_fns: dict[str, tuple[Callable[[Any], object], Callable[[], Any]]] = {}

    def register_state_dict_fn(
        self,
        key: str,
        load_state_dict: Callable[[Any], object],
        state_dict: Callable[[], Any],
        *,
        compared: bool = True,
    ) -> None:
        """Keep them; nobody learns here, but a test may call them."""
        if key in self.state_fns:
            raise ConfigError(f"state_dict functions {key!r} are registered", "another key")
        self.state_fns[key] = load_state_dict, state_dict

    def do_not_compare(self, *patterns: str) -> None:
        """Nothing is compared here in any case."""

    def replica_id(self) -> str:
        """Return this member's name."""
        return self._group.me

    def start_quorum(self) -> None:
        """Begin a step."""
        if self._begun and self._num_calls:
            raise ConfigError("the outcome of a step was not asked for", "should_commit() before")
        self._begun, self._error = True, None

    def wait_quorum(self) -> None:
        """Return: all replicas are there."""
        self._check_begun()

    def is_participating(self) -> bool:
        """Tell whether what this replica brings to the step counts."""
        return self._group.me in self._contributors

    def current_step(self) -> int:
        """Return how many steps are committed."""
        return self._step

    def allreduce(
        self, tensor: Tensor, should_quantize: bool | Kind = False, reduce_op: object = "avg"
    ) -> Pending:
        """Reduce a tensor in place, before this returns."""
        operation, kind = operation_of(reduce_op), kind_of(should_quantize)
        return self._carry_out(
            lambda: self._averager.average(
                [tensor],
                deadline=Deadline.after(_LIMIT_S),
                contributors=self._contributors,
                operation=operation,
                kind=kind,
            ),
            tensor,
        )

    def allgather(self, tensor: Tensor) -> tuple[list[Tensor], Pending]:
        """Gather every replica's tensor, before this returns."""
        found: list[Tensor] = []
        deadline = Deadline.after(_LIMIT_S)

        def act() -> None:
            group = self._group
            found.extend(moving.gather(group, tensor, subset=group.names, deadline=deadline))

        return found, self._carry_out(act, found)

    def report_error(self, e: Exception) -> None:
        """Let the step in hand commit nowhere."""
        self._error = self._error or e

    def errored(self) -> Exception | None:
        """Return what went wrong first in the step in hand, or None."""
        return self._error

    def should_commit(self) -> bool:
        """Vote; return whether the step commits, the same at every replica."""
        self._check_begun()
        word = _PREPARED if self._error is None else b"refused"
        votes = self._group.exchange_small(word, deadline=Deadline.after(_LIMIT_S))
        committed = set(votes.values()) == {_PREPARED}
        self._begun, self._num_calls = False, 0
        self._step += committed
        return committed

    def _carry_out(self, act: Callable[[], None], value: object) -> Pending:
        self._check_begun()
        self._num_calls += 1
        pending = Pending(value)
        act()
        pending.complete()
        return pending

    def _check_begun(self) -> None:
        if not self._begun:
            raise ConfigError("a call outside of a step", "start_quorum() before it, once a step")
