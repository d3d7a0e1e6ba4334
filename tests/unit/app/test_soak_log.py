"""A soak's judge finds what a runtime must not do, and nothing else."""

from __future__ import annotations

import pytest

from danaus.app.soak_log import ANYONE, END, Letter, Life, LifeLog, judge, line, read

A, B, B_AGAIN = Life(0, 0), Life(1, 0), Life(1, 1)


def letters(*numbers: int, to: int = 1) -> list[Letter]:
    return [Letter(A, to, number) for number in numbers]


def cast(*numbers: int) -> LifeLog:
    return LifeLog(sent=letters(*numbers), ended=True)


def called(*numbers: int, answered: tuple[int, ...] = (), told: tuple[int, ...] = ()) -> LifeLog:
    sent = letters(*numbers)
    return LifeLog(sent, set(sent), letters(*answered), letters(*told), ended=True)


def got(*numbers: int) -> LifeLog:
    return LifeLog(got=letters(*numbers))


@pytest.mark.parametrize(
    ("logs", "violation"),
    [
        ({A: cast(1, 2, 3), B: got(1, 2, 3)}, None),
        ({A: cast(1, 2, 3), B: got(1, 2)}, None),  # the last may have been under way
        ({A: cast(1, 2, 3), B: got(1), B_AGAIN: got(3)}, None),  # between two lives all may be lost
        ({A: cast(1, 2, 3), B: got(1, 3)}, "is missing between others"),
        ({A: called(1, 2, 3, answered=(1, 3), told=(2,)), B: got(1, 3)}, None),
        ({A: cast(1, 2), B: got(2, 1)}, "out of order"),
        ({A: cast(1), B: got(1), B_AGAIN: got(1)}, "got 2 times"),
        ({A: cast(1), B: got(1, 2)}, "never sent"),
        ({A: called(1, answered=(1,)), B: got()}, "answered and not got"),
        ({A: called(1), B: got(1)}, "came to no end"),
        ({A: called(1, told=(1,)), B: got(1)}, None),  # its answer may have been lost
    ],
)
def test_what_a_judge_finds(logs: dict[Life, LifeLog], violation: str | None) -> None:
    found = judge(logs).violations
    if violation is None:
        assert found == ()
    else:
        assert len(found) == 1
        assert violation in found[0]


def test_a_life_that_was_killed_leaves_calls_open() -> None:
    log = called(1)
    log.ended = False
    assert judge({A: log, B: got(1)}).violations == ()


def test_what_goes_to_anyone_has_no_order() -> None:
    sent = letters(1, 2, to=ANYONE)
    log = LifeLog(sent, set(sent), sent, [], ended=True)
    receivers = {B: LifeLog(got=[sent[1]]), Life(2, 0): LifeLog(got=[sent[0]])}
    assert judge({A: log, **receivers}).violations == ()


def test_a_log_is_read_as_it_was_written_but_for_a_torn_line() -> None:
    first, second = letters(1, 2)
    told = [line("call", first), line("answer", first), line("cast", second), END]
    log = read(b"".join(told).decode() + "got 0 0 1")
    assert log == LifeLog([first, second], {first}, [first], [], [], ended=True)
    other = read((line("got", first) + line("error", second)).decode())
    assert (other.got, other.told, other.ended) == ([first], [second], False)
