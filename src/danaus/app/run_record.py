"""What a run's files say, read for those who tell its story (report, compare).

Owns ``RunRecord``: commits from the ledgers, events from the journal, rates from the metrics.
It reads what is there: a run may have been killed at any moment, so that files are missing, end
in the middle of a line, or hold words of a later version.  What could not be read is a note, never
an error.  ``ft.ledger`` is the judge of a ledger; this module only looks at it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from danaus.app.events import Event
from danaus.app.run_folder import RunFolder
from danaus.core.errors import ConfigError


@dataclass(frozen=True)
class Commit:
    """One step that one member process applied.

    ``time`` is in seconds since 1970; ``members`` are ``"replica/rank#incarnation"``, empty where
    the ledger does not name them.
    """

    replica: str
    rank: int
    step: int
    time: float
    loss: float
    fingerprint: str
    term: int
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
    """A run as its files tell it; ``commits`` and ``events`` are in order of time."""

    path: Path
    commits: tuple[Commit, ...] = ()
    events: tuple[Happening, ...] = ()
    config: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.path.name

    @cached_property
    def lineage(self) -> dict[int, list[Commit]]:
        """Commits by step on the surviving lineage: of each step, those of the newest term."""
        steps: dict[int, list[Commit]] = {}
        for commit in self.commits:
            known = steps.setdefault(commit.step, [])
            if known and commit.term > known[0].term:
                known.clear()
            if not known or commit.term == known[0].term:
                known.append(commit)
        return dict(sorted(steps.items()))

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
            if event.name in (Event.RUN_STARTED, Event.RUN_RESUMED):
                seen.update(event.names("replicas"))
            elif event.name == Event.PROCESS_STARTED and event.text("replica"):
                seen.add(event.text("replica"))
        return tuple(sorted(seen, key=_in_words))

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
    commits = [c for p in folder.ledger_paths() for c in _commits(p, notes)]
    events = [e for line in _lines(folder.journal_path, notes) if (e := _happening(line))]
    try:
        config = folder.config()
    except ConfigError as error:
        config = {}
        notes.append(str(error))
    return RunRecord(
        path=folder.path,
        commits=tuple(sorted(commits, key=lambda c: (c.time, c.step, c.replica, c.rank))),
        events=tuple(sorted(events, key=lambda e: e.time)),
        config=config,
        notes=tuple(notes),
    )


def _lines(path: Path, notes: list[str]) -> Iterator[dict[str, Any]]:
    """Yield the whole JSON objects of a file; a torn tail is left out without a word."""
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        return
    except OSError as error:
        notes.append(f"{path.name} cannot be read: {error.strerror}")
        return
    pieces = raw.split(b"\n")
    num_damaged = 0
    for piece in pieces[:-1]:
        try:
            line = json.loads(piece)
        except ValueError:
            num_damaged += 1
            continue
        if isinstance(line, dict):
            yield line
    if num_damaged:
        notes.append(f"{path.name}: {num_damaged} damaged lines were left out")


def _happening(line: dict[str, Any]) -> Happening | None:
    time, name = line.get("at"), line.get("event")
    if not isinstance(time, int | float) or not isinstance(name, str):
        return None
    return Happening(float(time), name, line)


def _commits(path: Path, notes: list[str]) -> Iterator[Commit]:
    replica, _, rank = path.stem.rpartition("-")
    for line in _lines(path, notes):
        try:
            if "loss" in line and "step" in line:
                yield _commit(line, replica, int(rank))
        except (TypeError, ValueError, KeyError, IndexError):
            notes.append(f"{path.name}: a line of step {line.get('step')} could not be understood")


def _commit(line: dict[str, Any], replica: str, rank: int) -> Commit:
    epoch = line.get("epoch", [0, 0])
    term = int(str(epoch).split(".")[0]) if isinstance(epoch, str) else int(epoch[0])
    return Commit(
        replica=replica,
        rank=rank,
        step=int(line["step"]),
        time=float(line["at"]),
        loss=float(line["loss"]),
        fingerprint=str(line.get("fingerprint", "")),
        term=term,
        members=tuple(_member(m) for m in line.get("members", ())),
        num_tokens=int(line.get("num_tokens", 0)),
    )


def _member(value: object) -> str:
    """Return ``"replica/rank#incarnation"``, which a ledger may also hold as a list."""
    if isinstance(value, list) and len(value) == 3:
        return f"{value[0]}/{value[1]}#{value[2]}"
    return str(value)


def _in_words(name: str) -> tuple[str, int]:
    """Sort ``replica-10`` after ``replica-9``."""
    stem, _, number = name.rpartition("-")
    return (stem, int(number)) if number.isdigit() else (name, -1)
