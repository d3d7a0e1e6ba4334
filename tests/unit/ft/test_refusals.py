"""A step that is unfit again and again is given up, a replica that alone spoils it before that."""

import msgspec
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


def ballot(name, reason="not finite", *, own_share=False):
    member = MemberId(name, 0, 0)
    return Ballot(member, Epoch(1, 1), 5, "refused", "", "f", reason=reason, own_share=own_share)


def judge(refusals, *cast):
    """Judge as the first of these."""
    votes = {each.member: each for each in cast}
    refusals.judge(cast[0], votes, objection(cast, veto=False))


def test_the_same_step_unfit_in_a_row_is_given_up():
    judge(tried(MOST_TRIES - 1), ballot("a"), ballot("b"))
    with pytest.raises(StepImpossible) as raised:
        judge(tried(MOST_TRIES), ballot("a"), ballot("b"))
    why = "a/0#0, b/0#0 refused: not finite, 3 times in a row"
    assert (raised.value.step, raised.value.why) == (5, why)


def test_a_good_try_or_another_step_begins_anew():
    for step, unfit in ((5, False), (6, True)):
        refusals = tried(MOST_TRIES - 1)
        refusals.count(step, unfit=unfit)
        judge(refusals, ballot("a", own_share=True), ballot("b"))


def test_a_vote_that_is_no_refusal_gives_up_nothing():
    mine = msgspec.structs.replace(ballot("a"), vote="prepared")
    judge(tried(MOST_TRIES), mine, ballot("b", own_share=True))


def test_who_alone_is_to_blame_leaves_its_leaves_to_others_before_the_last_try():
    cast = ballot("a", "its own share is", own_share=True), ballot("b")
    judge(tried(MOST_TRIES - 2), *cast)
    judge(tried(MOST_TRIES - 1), *reversed(cast))
    with pytest.raises(ShareUnfit, match=r"^step 5: a/0#0 refused: its own share is; b/0#0 ref"):
        judge(tried(MOST_TRIES - 1), *cast)


def test_who_is_not_alone_to_blame_or_has_nobody_to_leave_them_to_stays():
    mine = ballot("a", own_share=True)
    judge(tried(MOST_TRIES - 1), mine, ballot("b", own_share=True))
    judge(tried(MOST_TRIES - 1), mine)


def test_the_words_name_first_whose_share_it_is():
    others = [ballot(name, "not finite") for name in "abdefgh"]
    cast = [*others[:2], ballot("c", "its own share is", own_share=True), *others[2:]]
    assert blamed(cast) == {"c"}
    assert objection(cast, veto=True) == (
        "c/0#0 refused: its own share is; a/0#0, b/0#0, d/0#0, e/0#0 and 3 more refused: not finite"
    )
