"""What a member process writes into its ledger, and when (T-7).

Owns ``Scribe``; the lines and the file are ``ft.ledger``'s.
"""

from __future__ import annotations

from danaus.core.clock import time_of_day
from danaus.ft import step_events as on
from danaus.ft.ledger import Committed, Ledger, RolledBack, pack_samples
from danaus.ft.observer import Shares
from danaus.ft.step_plan import StepPlan
from danaus.ft.stopwatch import Stopwatch
from danaus.ft.work import StepResult, Work


class Scribe:
    """Write down what was applied, after it was.

    Args:
        ledger: Where; None: nowhere.
        work: Knows which samples a step has.
        plan: What a step is.
        spent: What phases took.
    """

    def __init__(
        self, ledger: Ledger | None, work: Work, plan: StepPlan, *, spent: Stopwatch
    ) -> None:
        self._ledger, self._work, self._plan, self._spent = ledger, work, plan, spent

    def applied(
        self,
        order: on.Apply,
        result: StepResult,
        fingerprint: str,
        *,
        shares: Shares,
        attempt: int,
    ) -> Committed:
        """Write down a step; return its line.

        Args:
            order: Which step.
            result: What it was.
            fingerprint: Of the state after it.
            shares: Who computed what.
            attempt: Which try of this process it was, from 1.
        """
        leaves = range(self._plan.leaves_of(len(shares.runs)))
        line = Committed(
            at=time_of_day(),
            step=order.step,
            epoch=order.epoch,
            members=shares.members,
            leaves={name: (run.start, run.stop) for name, run in shares.runs.items()},
            samples=tuple(pack_samples(self._work.sample_ids(order.step, leaf)) for leaf in leaves),
            num_tokens=result.num_tokens,
            loss=result.loss,
            grad_norm=result.grad_norm,
            fingerprint=fingerprint,
            attempt=attempt,
            durations_s=self._spent.take(),
        )
        if self._ledger is not None:
            self._ledger.append(line)
        return line

    def restored(self, order: on.Restore) -> None:
        """Write down that the run went back."""
        if self._ledger is not None:
            line = RolledBack(time_of_day(), order.step, order.epoch.term, order.reason)
            self._ledger.append(line)
