"""What senders and receivers of a soak wrote down, and whether the runtime kept its word.

Owns the lines of a life's log and their judgement.  Pure.

A life is one incarnation of one actor.  It writes what it is about to send, what became of it, and
what it got; each line is on its way to the file before anything follows from it, so that a SIGKILL
takes none back.

Invariants:
    A-1: what a life gets of another comes in the order of its numbers.
    A-3: and comes once; between the first and the last that it gets, nothing is missing.
    A-4: whatever a life waited for, if it lived to its end, ended with a value or an error.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

ANYONE = -1
"""The receiver of what goes to whoever has the least to do."""


class Life(NamedTuple):
    """One incarnation of one actor."""

    rank: int
    incarnation: int


class Letter(NamedTuple):
    """One message to one receiver: numbers grow by one for each pair of sender and receiver."""

    sender: Life
    to: int
    number: int


@dataclass
class LifeLog:
    """All lines of one life, in their order.

    ``calls`` are those letters of ``sent`` that an answer was awaited of.
    """

    sent: list[Letter] = field(default_factory=list)
    calls: set[Letter] = field(default_factory=set)
    answered: list[Letter] = field(default_factory=list)
    told: list[Letter] = field(default_factory=list)
    got: list[Letter] = field(default_factory=list)
    ended: bool = False


@dataclass(frozen=True)
class Judgement:
    """What came of all letters.

    Args:
        num_lives: Incarnations that wrote anything.
        num_sent: Letters.
        num_got: Those that were got.
        num_answered: Calls that ended with a value.
        num_told: Calls that ended with an error.
        violations: In words, what must not have happened.
    """

    num_lives: int
    num_sent: int
    num_got: int
    num_answered: int
    num_told: int
    violations: tuple[str, ...]


def line(what: str, letter: Letter) -> bytes:
    """Return a line of a log: ``cast``, ``call``, ``answer``, ``error`` or ``got``."""
    (rank, incarnation), to, number = letter
    return b"%s %d %d %d %d\n" % (what.encode(), rank, incarnation, to, number)


END = b"end 0 0 0 0\n"
"""The line of a life that has nothing left to wait for."""


def read(text: str) -> LifeLog:
    """Return the log that a file holds; a last line that was cut off counts for nothing."""
    log = LifeLog()
    for each in text[: text.rfind("\n") + 1].splitlines():
        what, *numbers = each.split()
        rank, incarnation, to, number = map(int, numbers)
        letter = Letter(Life(rank, incarnation), to, number)
        match what:
            case "cast" | "call":
                log.sent.append(letter)
                if what == "call":
                    log.calls.add(letter)
            case "answer":
                log.answered.append(letter)
            case "error":
                log.told.append(letter)
            case "got":
                log.got.append(letter)
            case "end":
                log.ended = True
    return log


def judge(logs: Mapping[Life, LifeLog]) -> Judgement:
    """Return what came of all letters, and what must not have happened."""
    got = Counter(letter for log in logs.values() for letter in log.got)
    found = [
        *(f"{letter} was got {times} times" for letter, times in got.items() if times > 1),
        *_never_sent(logs, got),
    ]
    told = {letter for log in logs.values() for letter in log.told}
    for life, log in sorted(logs.items()):
        found += _in_order(life, log, logs, told=told)
        found += [f"{e} was answered and not got" for e in log.answered if not got[e]]
        if log.ended:
            open_calls = log.calls.difference(log.answered, log.told)
            found += [f"{letter} came to no end" for letter in sorted(open_calls)]
    return Judgement(
        len(logs),
        sum(len(log.sent) for log in logs.values()),
        got.total(),
        sum(len(log.answered) for log in logs.values()),
        len(told),
        tuple(found),
    )


def _never_sent(logs: Mapping[Life, LifeLog], got: Iterable[Letter]) -> list[str]:
    sent = {letter for log in logs.values() for letter in log.sent}
    return [f"{letter} was got and never sent" for letter in got if letter not in sent]


def _in_order(
    life: Life, log: LifeLog, logs: Mapping[Life, LifeLog], *, told: set[Letter]
) -> list[str]:
    """Return what a life got of others out of order, or with gaps that nobody was told of."""
    by_sender: dict[Life, list[int]] = defaultdict(list)
    for letter in log.got:
        if letter.to != ANYONE:
            by_sender[letter.sender].append(letter.number)
    found = []
    for sender, numbers in by_sender.items():
        if any(later <= before for before, later in zip(numbers, numbers[1:], strict=False)):
            found.append(f"{life} got those of {sender} out of order")
        here = set(numbers)
        sent = logs[sender].sent if sender in logs else []
        missing = [
            letter
            for letter in sent
            if letter.to == life.rank
            and min(here) < letter.number < max(here)
            and letter.number not in here
            and letter not in told
        ]
        found += [f"{letter} is missing between others that {life} got" for letter in missing]
    return found
