"""A restart budget that a later controller of the run goes on with (A-12)."""

from __future__ import annotations

from collections.abc import Callable

from danaus.actor.holdings import BudgetUsed
from danaus.actor.restart import Restart, RestartBudget
from danaus.core.clock import MonotonicClock


class KeptBudget(RestartBudget):
    """A restart budget that outlives its controller.

    Args:
        name: Of whatever is started again.
        policy: What is allowed.
        before: As an earlier controller has left it.
        write: Writes down how it stands.
    """

    def __init__(
        self,
        name: str,
        policy: Restart,
        before: BudgetUsed | None,
        *,
        write: Callable[[BudgetUsed], None],
    ) -> None:
        now = MonotonicClock().now()
        # A machine that was started again counts from 0: what lies ahead counts as of now.
        past = [min(each, now) for each in before.past] if before is not None else []
        super().__init__(policy, past, on_use=self._used)
        self.total = before.total if before is not None else 0
        self._name, self._write = name, write

    def _used(self, past: tuple[float, ...]) -> None:
        self._write(BudgetUsed(self._name, past, self.total))
