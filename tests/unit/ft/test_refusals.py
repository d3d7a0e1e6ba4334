"""A step that is unfit again and again is given up."""

import pytest

from danaus.core.errors import StepImpossible
from danaus.ft.refusals import MOST_TRIES, Refusals


def test_the_same_step_unfit_in_a_row_is_given_up():
    refusals = Refusals()
    for _ in range(MOST_TRIES - 1):
        refusals.count(5, "not finite")
    with pytest.raises(StepImpossible) as raised:
        refusals.count(5, "not finite")
    assert (raised.value.step, raised.value.why) == (5, "not finite, 3 times in a row")


def test_a_good_try_or_another_step_begins_anew():
    refusals = Refusals()
    for step, refusal in ((5, "bad"), (5, "bad"), (5, ""), (5, "bad"), (5, "bad"), (6, "bad")):
        refusals.count(step, refusal)
