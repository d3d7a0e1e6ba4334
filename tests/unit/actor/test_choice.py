"""Who gets the next message of ``choose``."""

from __future__ import annotations

from danaus.actor.choice import Choice


def anyone(_: int) -> bool:
    return True


def test_each_has_its_turn():
    choice = Choice(3)
    taken = []
    for _ in range(6):
        at = choice.take(anyone)
        taken.append(at)
        choice.give_back(at)
    assert taken == [0, 1, 2, 0, 1, 2]


def test_one_that_has_not_answered_is_passed_over():
    choice = Choice(3)
    slow = choice.take(anyone)
    others = []
    for _ in range(4):
        at = choice.take(anyone)
        others.append(at)
        choice.give_back(at)
    assert slow not in others
    choice.give_back(slow)
    assert slow in [choice.take(anyone) for _ in range(3)]


def test_one_that_may_not_be_taken_is_not():
    choice = Choice(3)
    assert [choice.take(lambda at: at == 2) for _ in range(3)] == [2, 2, 2]


def test_where_none_may_be_taken_one_is_all_the_same():
    assert Choice(2).take(lambda _: False) == 0
