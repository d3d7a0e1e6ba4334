"""Restart policies in OTP's words (A-9)."""

from __future__ import annotations

import pytest

from danaus.actor.restart import Restart, RestartBudget
from danaus.core.errors import ConfigError


def test_the_budget_is_counted_within_the_period():
    budget = RestartBudget(Restart(intensity=2, period_s=10.0))
    assert budget.decide((0,), 4, 0.0).restart
    assert budget.decide((0,), 4, 1.0).restart
    refused = budget.decide((0,), 4, 2.0)
    assert not refused.restart
    assert refused.reason == "3 failures in 10 s, 2 allowed"
    assert budget.decide((0,), 4, 10.5).restart
    assert budget.used(10.5) == 2


def test_no_failure_is_tolerated_at_intensity_zero():
    assert not RestartBudget(Restart(intensity=0)).decide((0,), 1, 0.0).restart


@pytest.mark.parametrize(
    ("strategy", "ranks"),
    [("one_for_one", (1, 2)), ("one_for_all", (0, 1, 2, 3)), ("rest_for_one", (1, 2, 3))],
)
def test_a_strategy_names_who_is_restarted(strategy, ranks):
    assert RestartBudget(Restart(strategy=strategy)).decide((2, 1), 4, 0.0).ranks == ranks


def test_a_lifetime_says_which_ends_count():
    for lifetime, clean, crashed in [
        ("permanent", True, True),
        ("transient", False, True),
        ("temporary", False, False),
    ]:
        budget = RestartBudget(Restart(lifetime=lifetime))
        assert budget.decide((0,), 1, 0.0, clean_exit=True).restart is clean
        assert budget.decide((0,), 1, 0.0).restart is crashed


def test_the_wait_doubles_and_is_bounded():
    budget = RestartBudget(Restart(intensity=9, backoff_s=1.0, max_backoff_s=3.0))
    waits = [budget.decide((0,), 1, float(n)).after_s for n in range(5)]
    assert waits == [0.0, 1.0, 2.0, 3.0, 3.0]


def test_a_policy_that_makes_no_sense_is_refused():
    with pytest.raises(ConfigError, match="period_s > 0"):
        Restart(period_s=0.0)
