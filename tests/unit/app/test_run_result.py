"""How a run ended: only who came to the last step has a say, and all of those must agree."""

from __future__ import annotations

import pytest

from danaus.app.run_result import RunResult, WorkerResult, conclude
from danaus.core.errors import Diverged


def test_equal_states_are_the_run_s() -> None:
    end = (WorkerResult(9, "aa"),)
    assert conclude({"a": end, "b": end}, 2) == RunResult(9, "aa", ("a", "b"), 2)


def test_ranks_of_one_replica_are_hashed_together_and_in_order() -> None:
    one, other = WorkerResult(9, "aa"), WorkerResult(9, "bb")
    both, reversed_ = conclude({"a": (one, other)}, 0), conclude({"a": (other, one)}, 0)
    assert both is not None
    assert reversed_ is not None
    assert len({both.sha256, reversed_.sha256, "aa"}) == 3


def test_one_that_came_too_late_to_learn_has_no_say() -> None:
    late = (WorkerResult(0, "the seed's"),)
    result = conclude({"a": (WorkerResult(9, "aa"),), "b": late, "c": ()}, 1)
    assert result == RunResult(9, "aa", ("a",), 1)


def test_without_anyone_at_the_end_there_is_no_result() -> None:
    assert conclude({"a": (), "b": ()}, 0) is None


def test_different_states_of_the_last_step_are_divergence_and_named() -> None:
    with pytest.raises(Diverged, match="after step 9: a has aa, b has bb"):
        conclude({"a": (WorkerResult(9, "aa"),), "b": (WorkerResult(9, "bb"),)}, 0)
