"""Messages in each sender's order, whatever order they arrive in (A-1)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from danaus.actor.ordering import HoldBack, Numbering


def test_an_early_message_is_held_back():
    held = HoldBack[str]()
    assert held.accept("s", 2, "b") == []
    assert held.accept("s", 1, "a") == ["a", "b"]


def test_a_repeated_message_is_dropped():
    held = HoldBack[str]()
    assert held.accept("s", 1, "a") == ["a"]
    assert held.accept("s", 1, "a") == []
    assert held.accept("s", 3, "c") == []
    assert held.accept("s", 3, "again") == []
    assert held.accept("s", 2, "b") == ["b", "c"]


def test_senders_do_not_wait_for_each_other():
    held = HoldBack[str]()
    assert held.accept("s", 2, "late") == []
    assert held.accept("t", 1, "now") == ["now"]


def test_what_was_refused_is_not_waited_for():
    held = HoldBack[str]()
    held.skip("s", 2)
    assert held.accept("s", 4, "d") == []
    assert held.accept("s", 3, "c") == ["c", "d"]
    assert held.accept("t", 1, "a") == ["a"]


@given(st.integers(1, 30).flatmap(lambda n: st.permutations(range(1, n + 1))), st.data())
def test_any_arrival_is_handled_once_and_in_order(order, data):
    held, handled = HoldBack[int](), []
    for number in order:
        for _ in range(data.draw(st.integers(1, 2))):
            handled += held.accept("s", number, number)
    assert handled == sorted(order)


def test_numbers_count_per_sender_and_receiver():
    numbers = Numbering()
    assert [next(numbers.counter("s", "r")) for _ in range(3)] == [1, 2, 3]
    assert next(numbers.counter("s", "other")) == 1
    assert next(numbers.counter("t", "r")) == 1


def test_the_usual_case_is_taken_at_once_and_only_that():
    order = HoldBack()
    assert order.is_due("a", 1)
    assert not order.is_due("a", 1)  # a repetition
    assert not order.is_due("a", 3)  # early
    assert order.accept("a", 3, "third") == []
    assert not order.is_due("a", 2)  # something waits for it
    assert order.accept("a", 2, "second") == ["second", "third"]
    assert order.is_due("a", 4)
