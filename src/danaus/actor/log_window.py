"""What processes write, as one reader is shown it: identical lines once, with who wrote them.

Owns ``Repeats`` (which lines are the same; pure) and ``LogWindow`` (shows them every few seconds;
on the connections' loop).
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Callable

Sink = Callable[[str, tuple[str, ...]], None]


def print_lines(process_id: str, lines: tuple[str, ...]) -> None:
    """Show what a worker wrote."""
    sys.stdout.write("".join(f"[{process_id}] {line}\n" for line in lines))
    sys.stdout.flush()


class Repeats:
    """Lines in the order in which each was first seen."""

    def __init__(self) -> None:
        self._seen: dict[str, Counter[str]] = {}

    def add(self, writer: str, lines: tuple[str, ...]) -> None:
        """Take what one process wrote."""
        for line in lines:
            self._seen.setdefault(line, Counter())[writer] += 1

    def take(self) -> list[tuple[str, str]]:
        """Return ``(who, line)`` for each different line, and begin anew."""
        seen, self._seen = self._seen, {}
        return [(_who(writers), line) for line, writers in seen.items()]


def _who(writers: Counter[str]) -> str:
    first, *others = writers
    who = f"{first} and {len(others)} more" if others else first
    times = writers.total()
    return f"{who}, {times} times" if times > len(writers) else who


class LogWindow:
    """Collects for so many seconds what is then shown at once.

    Args:
        window_s: Seconds; 0: everything is shown as it comes.
        sink: Shows lines: ``(who, lines)``.
    """

    def __init__(self, window_s: float, sink: Sink) -> None:
        self._window_s = window_s
        self._sink = sink
        self._repeats = Repeats()
        self._timer: asyncio.TimerHandle | None = None

    def add(self, writer: str, lines: tuple[str, ...]) -> None:
        """Take what one process wrote."""
        if not self._window_s:
            self._sink(writer, lines)
            return
        self._repeats.add(writer, lines)
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._window_s, self.flush)

    def flush(self) -> None:
        """Show now what was collected."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for who, line in self._repeats.take():
            self._sink(who, (line,))
