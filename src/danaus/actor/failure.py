"""What went wrong, as a value: the fault of one process or actor, and the failure of a mesh.

Owns ``Fault`` (one thing that happened, without a place), ``MeshFailure`` (the same as its owner
is told of it, A-8).  Who is told is decided in ``supervision``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

FaultKind = Literal["exception", "exit", "signal", "hang", "host_lost"]


@dataclass(frozen=True)
class Fault:
    """One thing that happened to a process or an actor.

    Args:
        kind: What sort of thing.
        reason: The same in words.
        exit_code: Of a process that ended by itself.
        signal: Name of the signal that ended it (``SIGKILL``).
        exception: What an endpoint raised, where it could be pickled.
        traceback: Its traceback as text.
        log_tail: The last lines that the process wrote.
        time_s: When it was noticed, seconds since the Unix epoch.
    """

    kind: FaultKind
    reason: str
    exit_code: int | None = None
    signal: str | None = None
    exception: BaseException | None = None
    traceback: str = ""
    log_tail: tuple[str, ...] = ()
    time_s: float = 0.0


@dataclass(frozen=True)
class MeshFailure:
    """What an owner's ``__supervise__`` is told (A-8).

    Args:
        mesh: Name of the mesh that failed.
        points: Where in it; one, or all that a lost host took with it.
        kind: ``exception``, ``exit``, ``signal``, ``hang`` or ``host_lost``.
        reason: The same in words.
        exit_code: Of a process that ended by itself.
        signal: Name of the signal that ended it (``SIGKILL``).
        exception: What an endpoint raised, where it could be pickled.
        traceback: Its traceback as text.
        log_tail: The last lines that the process wrote.
        time_s: When it was noticed, seconds since the Unix epoch.
        process_ids: The processes concerned, in the order of ``points``.
        mesh_id: Id of the mesh: its name may be taken again.
        cause: The failure that a raising ``__supervise__`` replaced by this one.
    """

    mesh: str
    points: tuple[Mapping[str, int], ...]
    kind: FaultKind
    reason: str
    exit_code: int | None = None
    signal: str | None = None
    exception: BaseException | None = None
    traceback: str = ""
    log_tail: tuple[str, ...] = ()
    time_s: float = 0.0
    process_ids: tuple[str, ...] = ()
    mesh_id: str = ""
    cause: MeshFailure | None = None

    @property
    def mesh_name(self) -> str:
        """Name of the mesh that failed (Monarch's name for it)."""
        return self.mesh

    @property
    def coordinate(self) -> Mapping[str, int] | None:
        """Where in it; None where it is more than one place."""
        return self.points[0] if len(self.points) == 1 else None

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks of ``points`` in their mesh."""
        return tuple(getattr(point, "rank", 0) for point in self.points)

    def __str__(self) -> str:
        where = ", ".join(_spell(point) for point in self.points[:_MOST_POINTS])
        if len(self.points) > _MOST_POINTS:
            where += f", … {len(self.points)} in all"
        return f"{self.mesh}[{where}] failed ({self.kind}): {self.reason}"

    def report(self) -> str:
        """Return what a person reads: the first cause leads, and all fits on a screen."""
        chain = [self]
        while chain[-1].cause is not None:
            chain.append(chain[-1].cause)
        root, *led_to = reversed(chain)
        lines = [str(root), *root._details(_DETAIL_LINES)]
        for failure in led_to[-_MOST_FAILURES:]:
            lines += [f"which led to: {failure}", *failure._details(_FEW_LINES)]
        return "\n".join(_clipped(line) for line in lines)

    def _details(self, num_lines: int) -> list[str]:
        """Return the traceback and what the process wrote last, in ``num_lines`` each at most."""
        trace = self.traceback.rstrip().splitlines()
        log = [f"| {line}" for line in self.log_tail]
        # A traceback ends with what was raised; of a log the end is what matters too.
        return [f"  {line}" for line in (*_last(trace, num_lines), *_last(log, num_lines))]


_DETAIL_LINES = 10
_FEW_LINES = 3
_MOST_FAILURES = 3
_MOST_POINTS = 4
_LINE_CHARS = 160


def _last(lines: list[str], num_lines: int) -> list[str]:
    if len(lines) <= num_lines:
        return lines
    left_out = len(lines) - num_lines + 1
    return [f"({left_out} lines before)", *lines[left_out:]]


def _clipped(line: str) -> str:
    line = " ".join(line.splitlines())
    return line if len(line) <= _LINE_CHARS else f"{line[: _LINE_CHARS - 1]}…"


def _spell(point: Mapping[str, int]) -> str:
    return " ".join(f"{axis}={place}" for axis, place in point.items()) or "0"
