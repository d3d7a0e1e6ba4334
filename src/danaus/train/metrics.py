"""What each applied step was, one JSON line each, for curves and dashboards.

Owns the names of the numbers.  The ledger is the record that is verified; these lines are for
people, and one that a full disk refuses is lost (and counted), never waited for.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

from danaus.core.clock import Clock, MonotonicClock
from danaus.core.journal import Journal, read
from danaus.train.trainer import StepResult


class Metrics:
    """Appends a line per applied step.

    Args:
        path: The file, shared with earlier incarnations of the same replica.
        clock: Where intervals are taken from.
    """

    def __init__(self, path: Path, clock: Clock | None = None) -> None:
        self._clock = clock or MonotonicClock()
        self._journal = Journal(path, self._clock)
        self._last: tuple[int, float] | None = None

    @property
    def num_lost(self) -> int:
        """Lines that could not be written."""
        return self._journal.num_lost

    def record(self, result: StepResult, **facts: Any) -> None:
        """Append the line of one step.  Never raises.

        ``tokens_per_s`` is over the time since the step before, where this process applied that
        too; waits count.

        Args:
            result: What ``Trainer.apply`` returned.
            facts: More to write beside it, such as ``num_replicas``.
        """
        now = self._clock.now()
        line: dict[str, Any] = {
            "step": result.step,
            "loss": result.loss,
            "grad_norm": result.grad_norm,
            "num_tokens": result.num_tokens,
            "lr": result.lr,
            **facts,
        }
        if self._last is not None and self._last[0] == result.step - 1 and now > self._last[1]:
            line["step_s"] = round(now - self._last[1], 6)
            line["tokens_per_s"] = round(result.num_tokens / (now - self._last[1]), 1)
        self._last = (result.step, now)
        self._journal.record("step", **line)

    def close(self) -> None:
        """Close the file."""
        self._journal.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Return the lines of a metrics file, a torn last one left out."""
    return [line for line in read(path) if line.get("event") == "step"]
