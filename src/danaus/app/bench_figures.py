"""Figures of a bench: what was measured how often, and how it is told.

Owns ``Figure``, ``Goal`` and the machine's idle noise beside them.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

_NOISE_S = 0.5
_IDLE = slice(3, 5)  # of a line of /proc/stat: idle and waiting for a disk


@dataclass(frozen=True)
class Figure:
    """One thing that was measured.

    Args:
        what: Names it within its row.
        unit: Of the values; empty: there are none, ``words`` says what was seen.
        values: Each time it was measured.
        words: What was seen, where a number does not tell it.
    """

    what: str
    unit: str = ""
    values: tuple[float, ...] = ()
    words: str = ""

    @property
    def median(self) -> float:
        """The middle of the values."""
        return statistics.median(self.values)

    def worst(self, *, high_is_good: bool = False) -> float:
        """Return the least welcome of the values."""
        return min(self.values) if high_is_good else max(self.values)

    def text(self, *, high_is_good: bool = False) -> str:
        """Return it as a table shows it: median, and worst where there are several."""
        if not self.values:
            return self.words or "–"
        told = _number(self.median)
        if len(self.values) > 1:
            told += f" ({_number(self.worst(high_is_good=high_is_good))})"
        return f"{told} {self.unit}" + (f"; {self.words}" if self.words else "")


@dataclass(frozen=True)
class Goal:
    """What a figure is to reach.

    Args:
        limit: The bound.
        high_is_good: It is a lower bound.
        always: The worst value must keep it, not only the median.
        words: How a table tells it; made of the others unless given.
        exactly: What is seen must be these words.
        like_peer: The bound is what the peer came to.
    """

    limit: float = 0.0
    high_is_good: bool = False
    always: bool = False
    words: str = ""
    exactly: str = ""
    like_peer: bool = False

    def text(self, unit: str) -> str:
        """Return it as a table shows it."""
        sign = "≥" if self.high_is_good else "≤"
        if self.like_peer:
            return f"{sign} the peer's"
        return self.words or self.exactly or f"{sign} {_number(self.limit)} {unit}"

    def is_met(self, figure: Figure, peer: Figure | None = None) -> bool | None:
        """Tell whether ``figure`` reaches it; None: without a peer's figure nobody can say."""
        if self.exactly:
            return figure.words == self.exactly
        if not figure.values:
            return False
        limit = self.limit
        if self.like_peer:
            if peer is None or not peer.values:
                return None
            limit = peer.median
        value = figure.worst(high_is_good=self.high_is_good) if self.always else figure.median
        return value >= limit if self.high_is_good else value <= limit


def seen(what: str, words: str) -> Figure:
    """Return a figure that is told in words."""
    return Figure(what, words=words)


def together(figures: Sequence[Figure]) -> Figure:
    """Return what was measured of one thing several times as one figure."""
    values = tuple(value for figure in figures for value in figure.values)
    words = "; ".join(dict.fromkeys(figure.words for figure in figures if figure.words))
    unit = next((figure.unit for figure in figures if figure.unit), "")
    return Figure(figures[0].what, unit if values else "", values, words)


def p50_and_p99(what: str, unit: str, runs: Sequence[Sequence[float]]) -> list[Figure]:
    """Return the median and the 99th percentile of each run."""
    middle = tuple(statistics.median(run) for run in runs)
    high = tuple(sorted(run)[min(len(run) - 1, round(0.99 * (len(run) - 1)))] for run in runs)
    before = f"{what}: " if what else ""
    return [Figure(f"{before}p50", unit, middle), Figure(f"{before}p99", unit, high)]


def windows(spans: Sequence[float], num_windows: int = 7) -> tuple[float, ...]:
    """Return the median of each of so many runs of equal length."""
    size = max(1, len(spans) // num_windows)
    starts = range(0, len(spans) - size + 1, size)
    return tuple(statistics.median(spans[at : at + size]) for at in starts)[:num_windows]


def scaled(values: Iterable[float], factor: float) -> tuple[float, ...]:
    """Return the values in another unit."""
    return tuple(value * factor for value in values)


def noise(over_s: float = _NOISE_S) -> float:
    """Return which part of this machine's cores is busy while this program waits."""
    before = _ticks()
    time.sleep(over_s)
    after = _ticks()
    spent = [b - a for a, b in zip(before, after, strict=True)]
    return 1.0 - sum(spent[_IDLE]) / max(1, sum(spent))


def _ticks() -> list[int]:
    first = Path("/proc/stat").read_text().partition("\n")[0]
    return [int(word) for word in first.split()[1:9]]


def _number(value: float) -> str:
    return f"{value:.3g}" if abs(value) < 100 else f"{value:,.0f}"
