"""What a run's files say, read for those who tell its story (report, compare).

Owns ``RunRecord``: commits from the ledgers, events from the journal.  It reads what is there: a
run may have been killed at any moment, so that files are missing, end in the middle of a line, or
hold words of a later version.  What could not be read is a note, never an error.  Which lines
stand is ``ft.lineage``'s to say, and so is the judgement of them.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from danaus.app.events import Event
from danaus.app.run_folder import RunFolder
from danaus.app.run_result import RunResult
from danaus.core import journal
from danaus.core.errors import ConfigError, LedgerDamaged
from danaus.ft.ledger import Committed, LedgerFile, read_ledger
from danaus.ft.lineage import History, merge


@dataclass(frozen=True)
class Commit:
    """One step that one member process applied.

    ``time`` is in seconds since 1970; ``members`` are ``"replica/rank#incarnation"``.
    """

    replica: str
    rank: int
    step: int
    time: float
    loss: float
    fingerprint: str
    epoch: tuple[int, int] = (0, 0)
    members: tuple[str, ...] = ()
    num_tokens: int = 0

    @property
    def replicas(self) -> frozenset[str]:
        """The replicas that took part."""
        return frozenset(replica_of(m) for m in self.members)


@dataclass(frozen=True)
class Happening:
    """One line of the journal; see ``app.events`` for names and facts."""

    time: float
    name: str
    facts: Mapping[str, Any]

    def text(self, fact: str) -> str:
        """Return a fact as words, empty where it is missing."""
        value = self.facts.get(fact)
        return "" if value is None else str(value)

    @property
    def replica(self) -> str:
        """The replica it is about, named by itself or by a ``member``; empty if none."""
        return self.text("replica") or replica_of(self.text("member"))

    @property
    def incarnation(self) -> int | None:
        """The incarnation it is about, None where it has none."""
        number = self.number("incarnation")
        if number is None:
            return incarnation_of(self.text("member")) if "#" in self.text("member") else None
        return int(number)

    def names(self, fact: str) -> tuple[str, ...]:
        """Return a fact that is a list of names."""
        value = self.facts.get(fact)
        return tuple(str(v) for v in value) if isinstance(value, list | tuple) else ()

    def number(self, fact: str) -> float | None:
        """Return a fact that is a number."""
        value = self.facts.get(fact)
        return float(value) if isinstance(value, int | float) else None


@dataclass(frozen=True)
class RunRecord:
    """A run as its files tell it.

    ``commits`` and ``events`` are in order of time.  ``lineage`` holds by step, steps in order, the
    commits that stand: no rollback voided them, and none of a newer epoch says the same step.
    """

    path: Path
    commits: tuple[Commit, ...] = ()
    lineage: Mapping[int, tuple[Commit, ...]] = field(default_factory=dict)
    events: tuple[Happening, ...] = ()
    config: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.path.name

    @cached_property
    def by_replica(self) -> dict[str, list[Commit]]:
        """Commits of each replica's first rank, in order of time."""
        found: dict[str, list[Commit]] = {}
        for commit in self.commits:
            if commit.rank == 0:
                found.setdefault(commit.replica, []).append(commit)
        return found

    @cached_property
    def losses(self) -> dict[int, float]:
        """Loss by step."""
        return {step: commits[0].loss for step, commits in self.lineage.items()}

    @cached_property
    def replicas(self) -> tuple[str, ...]:
        """Every replica that was planned or seen, in order."""
        seen = {c.replica for c in self.commits}
        for event in self.events:
            if event.name == Event.RUN_STARTED:
                seen.update(event.names("replicas"))
            elif event.name == Event.PROCESS_STARTED and event.replica:
                seen.add(event.replica)
        return tuple(sorted(seen, key=_in_words))

    @cached_property
    def _wanted(self) -> list[tuple[float, frozenset[str]]]:
        """From when on which replicas were to train."""
        found = [(0.0, frozenset(self.replicas))]
        if not any(event.name == Event.CREW_SCALED for event in self.events):
            return found  # all that were seen
        for event in self.events:
            if event.name == Event.RUN_STARTED:
                found.append((event.time, frozenset(event.names("replicas"))))
            elif event.name == Event.CREW_SCALED:
                after = (found[-1][1] | {*event.names("start")}) - {*event.names("drain")}
                found.append((event.time, after))
        return found

    def wanted_at(self, moment: float) -> frozenset[str]:
        """Return the replicas that were to train at a moment, in seconds since 1970."""
        last = bisect.bisect_right(self._wanted, moment, key=lambda each: each[0]) - 1
        return self._wanted[max(0, last)][1]

    @property
    def start(self) -> float:
        """When the run began, in seconds since 1970; 0.0 for a run without a trace."""
        return min(
            (t for t in (*(e.time for e in self.events[:1]), *(c.time for c in self.commits[:1]))),
            default=0.0,
        )

    @property
    def end(self) -> float:
        """When the last thing was written."""
        return max(
            (
                t
                for t in (*(e.time for e in self.events[-1:]), *(c.time for c in self.commits[-1:]))
            ),
            default=0.0,
        )

    def last(self, name: str) -> Happening | None:
        """Return the newest event of a name."""
        return next((e for e in reversed(self.events) if e.name == name), None)


def read_end(folder: RunFolder) -> RunResult | None:
    """Return how the run in a folder ended, None if it did not reach its end."""
    lines = _lines(folder.journal_path, [])
    finished = [e for line in lines if (e := happening(line)) and e.name == Event.RUN_FINISHED]
    if not finished:
        return None
    step, restarts = (int(finished[-1].number(n) or 0) for n in ("step", "num_restarts"))
    return RunResult(step, finished[-1].text("sha256"), (), restarts)


def finished_words(result: RunResult) -> str:
    """Return how a run that reached its last step is told."""
    times = result.num_restarts
    again = f"{times} times a replica was" if times > 1 else "a replica was once"
    words = f"{again} started again" if times else "no replica was started again"
    return f"finished: {result.step} steps, {words}; final state sha256 {result.sha256}"


def job_restarts(events: Iterable[Happening]) -> int:
    """Return how often the whole job went back to a checkpoint, or to its beginning.

    Each replica tells of it; the new term is what they have in common.
    """
    resumed = (e for e in events if e.name == Event.RUN_RESUMED)
    return len({(e.number("term"), e.number("step")) for e in resumed})


def tokens_per_s(record: RunRecord) -> float | None:
    """Return the tokens of committed steps per second, from the first commit to the last."""
    steps = [commits[0] for commits in record.lineage.values()]
    if len(steps) < 2 or steps[-1].time <= steps[0].time:
        return None
    return sum(c.num_tokens for c in steps[1:]) / (steps[-1].time - steps[0].time) or None


def replica_of(member: str) -> str:
    """Return the replica of ``"replica/rank#incarnation"``."""
    return member.rpartition("/")[0] or member


def incarnation_of(member: str) -> int:
    """Return the incarnation of ``"replica/rank#incarnation"``, 0 where it has none."""
    digits = member.rpartition("#")[2]
    return int(digits) if digits.isdigit() else 0


def read_run(path: Path) -> RunRecord:
    """Read what a run folder tells.

    Raises:
        ConfigError: There is no run at ``path``.
    """
    folder = RunFolder.open(path)
    notes: list[str] = []
    history = _history(folder, notes)
    commits = [
        _commit(file.writer, line)
        for file in history.files
        for line in file.lines
        if isinstance(line, Committed)
    ]
    events = [e for line in _lines(folder.journal_path, notes) if (e := happening(line))]
    try:
        config = folder.config()
    except ConfigError as error:
        config = {}
        notes.append(str(error))
    return RunRecord(
        path=folder.path,
        commits=tuple(sorted(commits, key=lambda c: (c.time, c.step, c.replica, c.rank))),
        lineage=_lineage(history),
        events=tuple(sorted(events, key=lambda e: e.time)),
        config=config,
        notes=tuple(notes),
    )


def _history(folder: RunFolder, notes: list[str]) -> History:
    """Merge the ledgers that can be read."""
    readable = []
    for path in folder.ledger_paths():
        try:
            file = read_ledger(path)
        except LedgerDamaged as error:
            notes.append(str(error))
            continue
        readable.append(path)
        notes.extend(_damage(file))
    return merge(readable)


def _damage(file: LedgerFile) -> Iterator[str]:
    if file.damaged:
        yield f"{file.path.name}: {len(file.damaged)} damaged lines were left out"


def _lineage(history: History) -> dict[int, tuple[Commit, ...]]:
    lineage = {}
    for step, lines in history.steps.items():
        newest = max(line.epoch for line in lines.values())
        found = (_commit(writer, line) for writer, line in lines.items() if line.epoch == newest)
        lineage[step] = tuple(sorted(found, key=lambda c: (c.replica, c.rank)))
    return lineage


def _commit(writer: str, line: Committed) -> Commit:
    replica, _, rank = writer.rpartition("/")
    return Commit(
        replica=replica,
        rank=int(rank),
        step=line.step,
        time=line.at,
        loss=line.loss,
        fingerprint=line.fingerprint,
        epoch=(line.epoch.term, line.epoch.n),
        members=tuple(map(str, line.members)),
        num_tokens=line.num_tokens,
    )


def _lines(path: Path, notes: list[str]) -> list[dict[str, Any]]:
    try:
        return journal.read(path)
    except OSError as error:
        notes.append(f"{path.name} cannot be read: {error.strerror}")
        return []


def happening(line: dict[str, Any]) -> Happening | None:
    """Return a line of a journal, None if it is not one."""
    time, name = line.get("at"), line.get("event")
    if not isinstance(time, int | float) or not isinstance(name, str):
        return None
    return Happening(float(time), name, line)


def _in_words(name: str) -> tuple[str, int]:
    """Sort ``replica-10`` after ``replica-9``."""
    stem, _, number = name.rpartition("-")
    return (stem, int(number)) if number.isdigit() else (name, -1)
