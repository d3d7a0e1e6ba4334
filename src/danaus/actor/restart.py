"""Restart policies in OTP's words, and the budget that ends them (A-9).

Pure: what to restart after a failure and when, from the policy, the past and ``now``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from danaus.core.errors import ConfigError

Strategy = Literal["one_for_one", "one_for_all", "rest_for_one"]
Lifetime = Literal["permanent", "transient", "temporary"]


@dataclass(frozen=True)
class Restart:
    """How a supervisor answers a failure.

    Args:
        strategy: ``one_for_one`` restarts the failed rank, ``one_for_all`` every rank,
            ``rest_for_one`` it and those after it.
        lifetime: ``permanent`` always restarts, ``transient`` only after an end that was not
            exit code 0, ``temporary`` never.
        intensity: Failures that are tolerated within ``period_s``; one more is too many.
        period_s: The window, in seconds.
        backoff_s: Wait before the second restart in a window; doubles with each.
        max_backoff_s: The longest wait, in seconds.
    """

    strategy: Strategy = "one_for_one"
    lifetime: Lifetime = "permanent"
    intensity: int = 3
    period_s: float = 60.0
    backoff_s: float = 0.0
    max_backoff_s: float = 30.0

    def __post_init__(self) -> None:
        if self.intensity < 0 or self.period_s <= 0 or self.backoff_s < 0:
            raise ConfigError(
                what=f"restart policy {self}",
                needed="intensity >= 0, period_s > 0 and backoff_s >= 0",
            )


@dataclass(frozen=True)
class RestartDecision:
    """What to do about a failure, and why."""

    restart: bool
    reason: str
    after_s: float = 0.0
    ranks: tuple[int, ...] = ()


class RestartBudget:
    """Counts one supervisor's failures against its policy.

    Args:
        policy: What is allowed.
        past: When failures were that count already, as an earlier controller has written it down.
        on_use: Told, after each failure that is tolerated, when all that still count were.
    """

    def __init__(
        self,
        policy: Restart,
        past: Iterable[float] = (),
        *,
        on_use: Callable[[tuple[float, ...]], None] = lambda _: None,
    ) -> None:
        self.policy = policy
        self._past: deque[float] = deque(past)
        self._on_use = on_use
        self.total = 0
        """Failures that were tolerated, in all."""

    @property
    def past(self) -> tuple[float, ...]:
        """When failures were that may still count."""
        return tuple(self._past)

    def used(self, now: float) -> int:
        """Return how many failures lie within the period that ends at ``now``."""
        while self._past and self._past[0] <= now - self.policy.period_s:
            self._past.popleft()
        return len(self._past)

    def decide(
        self, failed: tuple[int, ...], size: int, now: float, *, clean_exit: bool = False
    ) -> RestartDecision:
        """Decide about the failure of ``failed``, ranks of a mesh of ``size``.

        Args:
            failed: The ranks.
            size: How many ranks there are.
            now: Seconds on any clock that never falls.
            clean_exit: The process ended by itself with exit code 0.
        """
        policy = self.policy
        if policy.lifetime == "temporary":
            return RestartDecision(False, "its lifetime is temporary")
        if policy.lifetime == "transient" and clean_exit:
            return RestartDecision(False, "it ended with exit code 0 and is transient")
        used = self.used(now)
        if used >= policy.intensity:
            return RestartDecision(
                False, f"{used + 1} failures in {policy.period_s:g} s, {policy.intensity} allowed"
            )
        self._past.append(now)
        self.total += 1
        self._on_use(self.past)
        wait_s = 0.0 if used == 0 else policy.backoff_s * 2.0 ** (used - 1)
        return RestartDecision(
            True,
            f"failure {used + 1} of {policy.intensity} allowed in {policy.period_s:g} s",
            min(wait_s, policy.max_backoff_s),
            _reach(policy.strategy, failed, size),
        )


def _reach(strategy: Strategy, failed: tuple[int, ...], size: int) -> tuple[int, ...]:
    if strategy == "one_for_one":
        return tuple(sorted(set(failed)))
    first = 0 if strategy == "one_for_all" else min(failed, default=0)
    return tuple(range(first, size))
