"""A step that is unfit again and again is given up, a replica that alone spoils it before that."""

import pytest

from danaus.core.errors import ShareUnfit, StepImpossible
from danaus.ft.refusals import MOST_TRIES, Refusals
from danaus.ft.step_events import Ballot
from danaus.ft.tally import blamed, objection
from danaus.quorum.messages import Epoch, MemberId


def tried(num, step=5):
    refusals = Refusals()
    for _ in range(num):
        refusals.count(step, unfit=True)
    return refusals


def test_the_same_step_unfit_in_a_row_is_given_up():
    tried(MOST_TRIES - 1).judge("not finite", alone_to_blame=False)
    with pytest.raises(StepImpossible) as raised:
        tried(MOST_TRIES).judge("not finite", alone_to_blame=False)
    assert (raised.value.step, raised.value.why) == (5, "not finite, 3 times in a row")


def test_a_good_try_or_another_step_begins_anew():
    for step, unfit in ((5, False), (6, True)):
        refusals = tried(MOST_TRIES - 1)
        refusals.count(step, unfit=unfit)
        refusals.judge("bad", alone_to_blame=True)


def test_who_alone_is_to_blame_leaves_its_leaves_to_others_before_the_last_try():
    tried(MOST_TRIES - 2).judge("bad", alone_to_blame=True)
    with pytest.raises(ShareUnfit, match=r"^step 5: bad, 2 times in a row; this process ends"):
        tried(MOST_TRIES - 1).judge("bad", alone_to_blame=True)


def ballot(name, reason, *, own_share=False):
    member = MemberId(name, 0, 0)
    return Ballot(member, Epoch(1, 1), 5, "refused", "", "f", reason=reason, own_share=own_share)


def test_the_words_name_first_whose_share_it_is():
    others = [ballot(name, "not finite") for name in "abdefgh"]
    cast = [*others[:2], ballot("c", "its own share is", own_share=True), *others[2:]]
    assert blamed(cast) == {"c"}
    assert objection(cast, veto=True) == (
        "c/0#0 refused: its own share is; a/0#0, b/0#0, d/0#0, e/0#0 and 3 more refused: not finite"
    )
