"""The rendezvous store's table, without a connection."""

from __future__ import annotations

from danaus.wire.store import (
    Add,
    Answer,
    Append,
    Check,
    CompareSet,
    Count,
    Delete,
    Get,
    Request,
    Set,
    StoreTable,
    Wait,
)

A, B = b"a" * 16, b"b" * 16


def ask(table: StoreTable, request: Request, client: bytes = A) -> Answer:
    ((_, answer),) = table.handle(client, 1, request)
    return answer


def test_values_are_kept_counted_and_removed() -> None:
    table = StoreTable()
    assert ask(table, Set(1, "k/a", b"1")) == Answer(1)
    assert ask(table, Get(2, "k/a")).value == b"1"
    assert ask(table, Add(3, "k/a", 4)).count == 5
    assert ask(table, Add(4, "n", -2)).count == -2
    assert ask(table, Append(5, "t", b"x")) == Answer(5)
    assert ask(table, Append(6, "t", b"y")) == Answer(6)
    assert ask(table, Get(7, "t")).value == b"xy"
    assert "no number" in ask(table, Add(8, "t", 1)).refused
    assert ask(table, Count(9)).count == 3
    assert ask(table, Check(10, ("t", "n"))).count == 1
    assert ask(table, Check(11, ("t", "missing"))).count == 0
    assert ask(table, Delete(12, "k/", is_prefix=True)).count == 1
    assert ask(table, Delete(13, "k/a")).count == 0
    assert ask(table, Delete(14, "t")).count == 1
    assert ask(table, Count(15)).count == 1


def test_compare_set_sets_only_what_was_expected() -> None:
    table = StoreTable()
    assert ask(table, CompareSet(1, "k", b"", b"first")).value == b"first"
    assert ask(table, CompareSet(2, "k", b"", b"second")).value == b"first"
    assert ask(table, CompareSet(3, "k", b"first", b"third")).value == b"third"
    assert ask(table, CompareSet(4, "other", b"x", b"y")).value == b""
    assert ask(table, Check(5, ("other",))).count == 0


def test_waiting_ends_when_the_last_key_is_there() -> None:
    table = StoreTable()
    assert table.handle(A, 1, Wait(1, ("x", "y"))) == []
    assert table.handle(B, 2, Get(1, "x")) == []
    assert table.handle(A, 3, Set(2, "x", b"v")) == [(3, Answer(2)), (2, Answer(1, b"v"))]
    assert table.handle(A, 3, Add(3, "y", 1)) == [(3, Answer(3, count=1)), (1, Answer(1))]


def test_a_repeated_request_is_carried_out_once() -> None:
    table = StoreTable()
    first = ask(table, Add(1, "n", 1))
    assert ask(table, Add(1, "n", 1)) == first
    assert ask(table, Add(1, "n", 1), client=B).count == 2
    # Repeated while it waits, over a new connection: answered there.
    assert table.handle(A, 1, Get(2, "late")) == []
    table.gone(1)
    assert table.handle(A, 5, Get(2, "late")) == []
    assert table.handle(B, 6, Set(2, "late", b"v")) == [(6, Answer(2)), (5, Answer(2, b"v"))]


def test_who_is_gone_is_not_answered() -> None:
    table = StoreTable()
    assert table.handle(A, 1, Wait(1, ("x",))) == []
    table.gone(1)
    assert table.handle(B, 2, Set(1, "x", b"")) == [(2, Answer(1))]


def test_memory_of_answers_is_bounded() -> None:
    table = StoreTable()
    for number in range(1000):
        ask(table, Add(number, "n", 1))
    assert len(table._answered[A]) == 256
