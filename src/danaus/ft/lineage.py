"""One history out of many ledgers, and the judgement of it (T-7).

Owns ``merge`` (which lines stand after rollbacks) and ``verify`` (exactly-once samples, agreement
between members).  Works on lines alone, in any order of files, after any death.

A line stands unless the run rolled back behind it: ``RolledBack(k, term)`` voids the steps after
``k`` of every lower term.  Among standing lines of one step those of the highest epoch count.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from danaus.ft.ledger import (
    Committed,
    LedgerFile,
    Opened,
    RolledBack,
    read_ledger,
    unpack_samples,
)

Lines = Mapping[str, Committed]


@dataclass(frozen=True)
class History:
    """What the ledgers of a run say together.

    Args:
        files: The ledgers.
        steps: By step, the standing line of each writer (``replica/rank``), steps in order.
        rollbacks: Every rollback, by term.
        num_void: Lines that a rollback voided.
        repeated: ``(step, writer)`` of lines that say the same step of the same epoch again.
    """

    files: tuple[LedgerFile, ...]
    steps: Mapping[int, Lines]
    rollbacks: tuple[RolledBack, ...] = ()
    num_void: int = 0
    repeated: tuple[tuple[int, str], ...] = ()

    @property
    def last_step(self) -> int:
        """The newest committed step, 0 if there is none."""
        return max(self.steps, default=0)

    @property
    def samples_per_data_epoch(self) -> int:
        """Samples in one pass over the text, 0 where no ledger tells."""
        return max((line.samples_per_data_epoch for _, line in self.opened()), default=0)

    def opened(self) -> Iterator[tuple[str, Opened]]:
        """Yield the first line of every incarnation, with its writer."""
        for file in self.files:
            for line in file.lines:
                if isinstance(line, Opened):
                    yield file.writer, line


@dataclass(frozen=True)
class Problem:
    """Something the ledgers of a run must not say.

    Args:
        step: Where, 0: not at a step.
        what: What, in words.
        names: Writers that it is about.
    """

    step: int
    what: str
    names: tuple[str, ...] = ()

    def __str__(self) -> str:
        where = f"step {self.step}: " if self.step else ""
        who = f" ({', '.join(self.names)})" if self.names else ""
        return f"{where}{self.what}{who}"


@dataclass(frozen=True)
class Verification:
    """The judgement: ``problems`` are violations, ``notes`` are what the run went through."""

    num_steps: int
    num_samples: int
    problems: tuple[Problem, ...]
    notes: tuple[Problem, ...] = field(default=())

    @property
    def ok(self) -> bool:
        """Tell whether nothing is wrong."""
        return not self.problems


def merge(paths: Iterable[Path]) -> History:
    """Read ledgers and keep what stands.

    Raises:
        LedgerDamaged: A file cannot be read, or has no or several writers.
    """
    files = tuple(read_ledger(path) for path in sorted(paths))
    rollbacks = {
        (line.term, line.step): line
        for file in files
        for line in file.lines
        if isinstance(line, RolledBack)
    }
    steps: dict[int, dict[str, Committed]] = {}
    num_void, repeated = 0, []
    for file in files:
        for line in file.lines:
            if not isinstance(line, Committed):
                continue
            if any(line.epoch.term < term and line.step > k for term, k in rollbacks):
                num_void += 1
                continue
            lines = steps.setdefault(line.step, {})
            known = lines.get(file.writer)
            if known is not None and known.epoch == line.epoch:
                repeated.append((line.step, file.writer))
            if known is None or known.epoch < line.epoch:
                lines[file.writer] = line
    return History(
        files=files,
        steps=dict(sorted(steps.items())),
        rollbacks=tuple(line for _, line in sorted(rollbacks.items())),
        num_void=num_void,
        repeated=tuple(repeated),
    )


def verify(history: History) -> Verification:
    """Judge a history: each sample once per data epoch, and every member of one mind."""
    problems = [*_unreadable(history), *_gaps(history)]
    notes = [
        Problem(line.step, f"rolled back to this step in term {line.term}: {line.reason}")
        for line in history.rollbacks
    ]
    notes += _environments(history)
    for step, lines in history.steps.items():
        problems += _sharing(step, _standing(lines))
        for problem, healed in _disagreements(history, step, lines):
            (notes if healed else problems).append(problem)
    num_samples, wrong = _samples(history)
    return Verification(
        num_steps=len(history.steps),
        num_samples=num_samples,
        problems=tuple(problems + wrong),
        notes=tuple(notes),
    )


def _standing(lines: Lines) -> dict[str, Committed]:
    """Return the lines of the step's highest epoch."""
    newest = max(line.epoch for line in lines.values())
    return {name: line for name, line in lines.items() if line.epoch == newest}


def _unreadable(history: History) -> Iterator[Problem]:
    for file in history.files:
        for number in file.damaged:
            yield Problem(0, f"line {number} of {file.path.name} is damaged", (file.writer,))
    for step, writer in history.repeated:
        yield Problem(step, "committed twice in one epoch", (writer,))
    identities = {line.identity for _, line in history.opened()}
    if len(identities) > 1:
        names = tuple(f"{writer}: {line.identity}" for writer, line in history.opened())
        yield Problem(0, "incarnations of this run had different settings or text", names)


def _environments(history: History) -> Iterator[Problem]:
    """Note what differs between members' machines, where bits are promised for like ones."""
    facts: dict[str, dict[str, str]] = {}
    for writer, line in history.opened():
        for key, value in line.environment.items():
            facts.setdefault(key, {})[value] = writer
    for key, values in sorted(facts.items()):
        if len(values) > 1:
            names = tuple(f"{writer}: {value}" for value, writer in values.items())
            yield Problem(0, f"members differ in {key}", names)


def _gaps(history: History) -> Iterator[Problem]:
    missing = sorted(set(range(1, history.last_step + 1)) - set(history.steps))
    for step in missing:
        yield Problem(step, "no ledger holds this step, though later ones are held")


def _sharing(step: int, lines: Lines) -> Iterator[Problem]:
    """Check that the leaves were each computed once, by members."""
    for name, line in lines.items():
        computed = Counter(
            leaf for first, end in line.leaves.values() for leaf in range(first, end)
        )
        if computed != Counter(range(len(line.samples))):
            yield Problem(step, f"leaves {line.leaves} do not cover each leaf once", (name,))
        strangers = set(line.leaves) - {member.replica_id for member in line.members}
        if strangers:
            yield Problem(step, f"{min(strangers)} computed without being a member", (name,))
        return  # one line is enough: that all are alike is checked elsewhere


def _disagreements(history: History, step: int, lines: Lines) -> Iterator[tuple[Problem, bool]]:
    """Yield each disagreement, and whether those in the wrong agreed again later."""
    fields: dict[str, Callable[[Committed], object]] = {
        "samples": lambda line: line.samples,
        "leaves": lambda line: line.leaves,
        "num_tokens": lambda line: line.num_tokens,
        "loss": lambda line: line.loss,
        "grad_norm": lambda line: line.grad_norm,
    }
    for name, value in fields.items():
        values = {writer: _short(value(line)) for writer, line in lines.items()}
        yield from _odd_ones(history, step, what=name, values=values)
    for rank in sorted({_rank(writer) for writer in lines}):
        values = {w: line.fingerprint for w, line in lines.items() if _rank(w) == rank}
        yield from _odd_ones(history, step, what="fingerprint", values=values)


def _odd_ones(
    history: History, step: int, *, what: str, values: Mapping[str, str]
) -> Iterator[tuple[Problem, bool]]:
    counted = Counter(values.values()).most_common()
    if len(counted) == 1:
        return
    if counted[0][1] == counted[1][1]:
        who = tuple(f"{name}: {value}" for name, value in sorted(values.items()))
        yield Problem(step, f"members disagree about {what}, with no majority", who), False
        return
    right = counted[0][0]
    odd = sorted(name for name, value in values.items() if value != right)
    healed = what in ("fingerprint", "loss", "grad_norm") and all(
        _agreed_later(history, step, name) for name in odd
    )
    ending = ", healed later" if healed else ""
    names = tuple(f"{name}: {values[name]}" for name in odd)
    yield Problem(step, f"diverged in {what} from {right}{ending}", names), healed


def _agreed_later(history: History, step: int, writer: str) -> bool:
    """Tell whether ``writer`` has the same fingerprint as most others at some later step."""
    for later, lines in history.steps.items():
        if later > step and writer in lines:
            alike = [x.fingerprint for name, x in lines.items() if _rank(name) == _rank(writer)]
            same = alike.count(lines[writer].fingerprint)
            if same > 1 and 2 * same > len(alike):
                return True
    return False


def _short(value: object) -> str:
    """Return a value in words, a long one by its digest."""
    text = str(value)
    if len(text) <= 60:
        return text
    return f"[{hashlib.blake2b(text.encode(), digest_size=8).hexdigest()}]"


def _rank(writer: str) -> str:
    return writer.rpartition("/")[2]


def _samples(history: History) -> tuple[int, list[Problem]]:
    """Count samples; check that each is committed once, a data epoch before the next begins."""
    problems: list[Problem] = []
    first_seen: dict[int, int] = {}
    for step, lines in history.steps.items():
        line = next(iter(_standing(lines).values()))
        for sample in _ids(step, line, problems):
            if sample in first_seen:
                problems.append(
                    Problem(step, f"sample {sample} was already committed in {first_seen[sample]}")
                )
            first_seen[sample] = step
    each = history.samples_per_data_epoch
    if each and not problems and len(history.steps) == history.last_step:
        complete, rest = divmod(len(first_seen), each)
        over = [sample for sample in first_seen if sample >= (complete + (rest > 0)) * each]
        if over:
            step = min(first_seen[sample] for sample in over)
            problems.append(
                Problem(step, f"sample {min(over)} came before its data epoch had begun")
            )
        unread = complete * each - sum(1 for sample in first_seen if sample < complete * each)
        if unread:
            problems.append(
                Problem(0, f"{unread} samples of data epochs that are over were never committed")
            )
    return len(first_seen), problems


def _ids(step: int, line: Committed, problems: list[Problem]) -> list[int]:
    try:
        return [sample for leaf in line.samples for sample in unpack_samples(leaf)]
    except ValueError:
        problems.append(Problem(step, "its samples cannot be read"))
        return []
