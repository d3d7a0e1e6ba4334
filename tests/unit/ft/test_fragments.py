"""The schedule of fragments: what is ordered after which inner step, and after which vote."""

import pytest

from danaus.core.errors import ConfigError
from danaus.ft.fragments import (
    Apply,
    Begin,
    Begun,
    Entered,
    FragmentMachine,
    Learned,
    NobodyBrought,
    Prepare,
    Reduce,
    Schedule,
    Stepped,
    Vote,
    Voted,
)


def machine(*schedule: int) -> FragmentMachine:
    made = FragmentMachine(Schedule(*schedule))
    assert made.handle(Entered()) == (Begin(),)
    assert made.handle(Begun()) == ()
    return made


def walk(made: FragmentMachine, num_steps: int) -> dict[int, list[object]]:
    """Take inner steps, all votes in favour; return what was ordered after which."""
    orders: dict[int, list[object]] = {}
    for step in range(1, num_steps + 1):
        todo = list(made.handle(Stepped()))
        while todo:
            order = todo.pop(0)
            orders.setdefault(step, []).append(order)
            if isinstance(order, Vote):
                todo += made.handle(Voted(True))
            if isinstance(order, Begin):
                todo += made.handle(Begun())
    return orders


def prepared(n: int) -> list[object]:
    return [Prepare(n), Reduce(n, True)]


def settled(n: int) -> list[object]:
    return [Vote(n), Apply(n), Begin()]


def test_fragments_meet_in_turn():
    assert walk(machine(6, 2), 12) == {
        3: prepared(0) + settled(0),
        6: prepared(1) + settled(1),
        9: prepared(0) + settled(0),
        12: prepared(1) + settled(1),
    }


def test_with_a_delay_the_vote_comes_later():
    assert walk(machine(6, 2, 2), 7) == {
        1: prepared(0),
        3: settled(0),
        4: prepared(1),
        6: settled(1),
        7: prepared(0),
    }


def test_every_step_may_be_an_outer_step():
    assert walk(machine(1), 2) == {1: prepared(0) + settled(0), 2: prepared(0) + settled(0)}


@pytest.mark.parametrize(
    ("sync_every", "num", "ends"),
    [
        (7, 2, [3, 7, 10, 14]), (8, 3, [2, 5, 8, 10]), (5, 5, [1, 2, 3, 4, 5]),
        (100, 3, [33, 66, 100]),
    ],
)  # fmt: skip
def test_fragments_that_do_not_divide_the_steps_all_meet_once_in_them(sync_every, num, ends):
    orders = walk(machine(sync_every, num), ends[-1])
    assert list(orders) == ends
    assert [orders[end][0] for end in ends] == [Prepare(n % num) for n in range(len(ends))]


def test_after_a_vote_against_it_the_same_is_reduced_again_and_no_step_is_taken():
    made = machine(2)
    assert made.handle(Stepped()) == ()
    assert made.handle(Stepped()) == (Prepare(0), Reduce(0, True), Vote(0))
    for pause_s in (0.0, 0.02, 0.04):
        assert made.handle(Voted(False)) == (Begin(pause_s),)
        assert made.handle(Begun()) == (Reduce(0, True), Vote(0))
        assert (made.num_outer, made.num_inner) == (0, 2)
    assert made.handle(Voted(True)) == (Apply(0), Begin())
    assert (made.num_outer, made.num_inner) == (1, 0)
    assert made.handle(Begun()) == ()
    assert made.handle(Stepped()) == ()


def test_tries_in_vain_are_at_most_a_second_apart():
    made = machine(1)
    made.handle(Stepped())
    pauses = [order.pause_s for _ in range(2000) for order in made.handle(Voted(False))]
    assert max(pauses) == pauses[-1] == 1.0


def test_one_that_has_learned_between_votes_brings_nothing_to_the_next():
    made = machine(4, 2)
    made.handle(Learned(3, 2))
    assert made.handle(Begun()) == (Reduce(1, False), Vote(1))
    assert made.handle(Voted(False)) == (Begin(),)
    assert made.handle(Begun()) == (Reduce(1, False), Vote(1))
    assert made.handle(Voted(True)) == (Apply(1), Begin())
    assert made.handle(Begun()) == ()
    assert walk(made, 2) == {2: prepared(0) + settled(0)}


def test_one_that_has_learned_at_a_beginning_has_a_period_to_bring():
    made = machine(4, 2)
    made.handle(Learned(1, 0))
    assert made.handle(Begun()) == ()
    assert walk(made, 2) == {2: prepared(1) + settled(1)}


def test_where_nobody_has_work_of_its_own_what_was_learned_is_brought():
    made = machine(4, 2)
    made.handle(Learned(3, 2))
    assert made.handle(Begun()) == (Reduce(1, False), Vote(1))
    assert made.handle(NobodyBrought()) == (Prepare(1), Reduce(1, True), Vote(1))
    assert made.handle(Voted(False)) == (Begin(),)
    assert made.handle(Begun()) == (Reduce(1, True), Vote(1))


def test_a_state_learned_while_votes_are_out_does_not_put_off_the_next_vote():
    made = machine(2)
    made.handle(Stepped())
    made.handle(Stepped())
    made.handle(Learned(0, 0))
    assert made.handle(Voted(False)) == (Begin(),)
    assert made.handle(Begun()) == (Reduce(0, False), Vote(0))


@pytest.mark.parametrize(
    ("schedule", "words"),
    [
        ((0,), "sync_every is 0 with 1 fragments"),
        ((3, 4), "sync_every is 3 with 4 fragments"),
        ((3, 0), "no fragment"),
        ((7, 2, 3), "fragment_sync_delay is 3: 0 to 2"),
        ((7, 2, -1), "fragment_sync_delay is -1"),
    ],
)
def test_schedules_that_cannot_be_are_refused(schedule, words):
    with pytest.raises(ConfigError, match=words):
        Schedule(*schedule)
