"""Messages in the order in which each sender sent them (A-1).

A message carries a number per (sender, receiver), from 1.  The receiver holds back what arrives
early and drops what it has had: whatever route a message takes, an actor sees each sender's
messages once and in order.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator
from typing import Generic, TypeVar

Item = TypeVar("Item")


class HoldBack(Generic[Item]):
    """The receiving side: of one actor, over all its senders."""

    def __init__(self) -> None:
        self._due: defaultdict[str, int] = defaultdict(lambda: 1)
        self._early: defaultdict[str, dict[int, Item]] = defaultdict(dict)

    def is_due(self, sender: str, number: int) -> bool:
        """Take one arrival if it is just the next and nothing waits for it: the usual case."""
        if self._due[sender] != number or (self._early and self._early.get(sender)):
            return False
        self._due[sender] = number + 1
        return True

    def is_past(self, sender: str, number: int) -> bool:
        """Tell whether such a message was taken before."""
        return number < self._due[sender]

    def accept(self, sender: str, number: int, item: Item) -> list[Item]:
        """Take one arrival; return what may be handled now, in order.

        Returns:
            Nothing for an early or repeated arrival.
        """
        due = self._due[sender]
        if number != due:
            if number > due:
                self._early[sender].setdefault(number, item)
            return []
        ready = [item]
        early = self._early.get(sender)
        due += 1
        while early and due in early:
            ready.append(early.pop(due))
            due += 1
        self._due[sender] = due
        return ready

    def skip(self, sender: str, number: int) -> None:
        """Wait for nothing up to ``number`` of ``sender``: it was refused, nothing is held yet."""
        self._due[sender] = max(self._due[sender], number + 1)


class Numbering:
    """The sending side: what numbers messages to each receiver; from any thread."""

    def __init__(self) -> None:
        self._counters: dict[tuple[str, str], Iterator[int]] = {}

    def counter(self, sender: str, receiver: str) -> Iterator[int]:
        """Return what yields the numbers of messages from ``sender`` to ``receiver``, from 1."""
        return self._counters.setdefault((sender, receiver), itertools.count(1))
