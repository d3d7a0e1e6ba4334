"""Two runs side by side: the same bits or not, and if not, where they part.

Owns ``Comparison`` and ``compare``, a pure function of two records, and its tables for a person.
Bits are compared by the fingerprint that every member of every step wrote into its ledger, rank by
rank; the loss curves are compared as numbers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from rich.table import Table

from danaus.app.events import Event
from danaus.app.run_record import Commit, RunRecord, tokens_per_s
from danaus.app.timeline import faults

_SHOWN_STEPS = 8
_FIX_THE_BITS = ("model", "data", "optim", "step", "parallel", "platform")
"""Sections of settings of which the bits are a function."""


@dataclass(frozen=True)
class Difference:
    """A step after which two states differ; ``a`` and ``b`` are their fingerprints."""

    step: int
    rank: int
    a: str
    b: str


@dataclass(frozen=True)
class Comparison:
    """What two runs have in common.

    Args:
        a: First run.
        b: Second run.
        common_steps: Steps that both committed, rising.
        first: Where the bits part first; None where they never do.
        incomparable: Why no bits could be compared; empty if they could.
    """

    a: RunRecord
    b: RunRecord
    common_steps: tuple[int, ...]
    first: Difference | None = None
    incomparable: str = ""

    @property
    def same(self) -> bool:
        """Whether every step that both committed left the same bits, and there is one."""
        return self.first is None and not self.incomparable

    @property
    def verdict(self) -> str:
        """The answer in one line."""
        if self.incomparable:
            return f"NOT COMPARED: {self.incomparable}"
        if self.first is not None:
            d = self.first
            return (
                f"DIFFERENT BITS from step {d.step} on: rank {d.rank} has {d.a} in {self.a.name} "
                f"and {d.b} in {self.b.name}"
            )
        last = self.common_steps[-1]
        (fingerprint,) = _fingerprints(self.a, last)[min(_fingerprints(self.a, last))]
        return f"SAME BITS in all {len(self.common_steps)} steps, {fingerprint} after step {last}"

    def unlike_settings(self) -> list[str]:
        """Return the settings that differ and that the bits depend on, with both values."""
        sections = [
            (each, self.a.config.get(each), self.b.config.get(each)) for each in _FIX_THE_BITS
        ]
        return [
            f"{section}.{name} is {a[name]} in {self.a.name} and {b[name]} in {self.b.name}"
            for section, a, b in sections
            if isinstance(a, Mapping) and isinstance(b, Mapping)
            for name in sorted(a.keys() & b.keys())
            if a[name] != b[name]
        ]

    def largest_loss_difference(self) -> tuple[int, float]:
        """Return the step with the largest difference of losses, and that difference."""
        gaps = {s: abs(self.a.losses[s] - self.b.losses[s]) for s in self.common_steps}
        return max(gaps.items(), key=lambda item: item[1], default=(0, 0.0))


def compare(a: RunRecord, b: RunRecord) -> Comparison:
    """Compare two runs step by step."""
    common = tuple(sorted(a.lineage.keys() & b.lineage.keys()))
    if not common:
        return Comparison(a, b, common, incomparable="no step was committed by both runs")
    for step in common:
        of_a, of_b = _fingerprints(a, step), _fingerprints(b, step)
        if of_a.keys() != of_b.keys():
            why = (
                f"replicas of {a.name} have {len(of_a)} ranks and those of {b.name} {len(of_b)}: "
                "each rank holds another part of the state"
            )
            return Comparison(a, b, common, incomparable=why)
        for rank in sorted(of_a):
            both = of_a[rank] | of_b[rank]
            if "" in both:
                why = f"step {step} has no fingerprint"
                return Comparison(a, b, common, incomparable=why)
            if len(both) > 1:
                first = Difference(step, rank, _words(of_a[rank]), _words(of_b[rank]))
                return Comparison(a, b, common, first=first)
    return Comparison(a, b, common)


def _fingerprints(record: RunRecord, step: int) -> dict[int, set[str]]:
    """Return by rank the fingerprints after a step; more than one: its replicas disagree.

    Those of a minority that agreed with the others again at a later step do not count: it was
    healed, and its bits are in no result.
    """
    found: dict[int, set[str]] = {}
    for rank, commits in _by_rank(record, step).items():
        usual = _usual(commits)
        found[rank] = {
            c.fingerprint
            for c in commits
            if c.fingerprint == usual or _last_agreed(record, c.replica, rank) < step
        }
    return found


def _by_rank(record: RunRecord, step: int) -> dict[int, list[Commit]]:
    ranks: dict[int, list[Commit]] = {}
    for commit in record.lineage[step]:
        ranks.setdefault(commit.rank, []).append(commit)
    return ranks


def _usual(commits: list[Commit]) -> str | None:
    """Return the fingerprint of more than half, None if there is no such."""
    (fingerprint, number), *_ = Counter(c.fingerprint for c in commits).most_common(1)
    return fingerprint if 2 * number > len(commits) else None


def _last_agreed(record: RunRecord, replica: str, rank: int) -> int:
    """Return the newest step after which a member had the fingerprint of most, 0 if never."""
    for step in sorted(record.lineage, reverse=True):
        commits = _by_rank(record, step).get(rank, [])
        own = [c.fingerprint for c in commits if c.replica == replica]
        if own and own[0] == _usual(commits):
            return step
    return 0


def _words(fingerprints: set[str]) -> str:
    return " or ".join(sorted(fingerprints))


def run_table(comparison: Comparison) -> Table:
    """Return what each run came to, as a table of two columns."""
    table = Table(box=None, pad_edge=False)
    table.add_column("")
    for record in (comparison.a, comparison.b):
        table.add_column(record.name, justify="right")
    rows: dict[str, Callable[[RunRecord], str]] = {
        "steps committed": lambda r: f"{max(r.losses, default=0):,}",
        "replicas": lambda r: str(len(r.replicas)),
        "faults": lambda r: str(len(faults(r))),
        "final loss": lambda r: f"{r.losses[max(r.losses)]:.6f}" if r.losses else "–",
        "final state": lambda r: _final_state(r) or "–",
        "seconds": lambda r: f"{r.end - r.start:,.1f}",
        "tokens/s": lambda r: f"{rate:,.0f}" if (rate := tokens_per_s(r)) else "–",
    }
    for name, of in rows.items():
        table.add_row(name, of(comparison.a), of(comparison.b))
    return table


def _final_state(record: RunRecord) -> str:
    finished = record.last(Event.RUN_FINISHED)
    return f"sha256 {finished.text('sha256')[:16]}" if finished else ""


def loss_table(comparison: Comparison) -> Table:
    """Return the losses of both runs at a few steps, the first differing one among them."""
    table = Table(box=None, pad_edge=False)
    for name in ("step", comparison.a.name, comparison.b.name, "difference"):
        table.add_column(name, justify="right")
    for step in _shown(comparison):
        a, b = comparison.a.losses[step], comparison.b.losses[step]
        table.add_row(f"{step}", f"{a:.6f}", f"{b:.6f}", f"{b - a:+.2e}" if a != b else "0")
    return table


def _shown(comparison: Comparison) -> list[int]:
    steps = comparison.common_steps
    if not steps:
        return []
    picked = {steps[i * (len(steps) - 1) // (_SHOWN_STEPS - 1)] for i in range(_SHOWN_STEPS)}
    if comparison.first is not None:
        picked.add(comparison.first.step)
    return sorted(picked)
