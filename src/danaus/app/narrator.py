"""Tells a person what happens in a run while it happens, from the files that the run writes.

Owns ``Narrator``.  It reads the journal and the replicas' metrics, so that it is on nobody's
path and tells of a run that it did not start just as well.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from danaus.app.events import SERVICE, Event
from danaus.app.progress import Progress
from danaus.app.run_folder import RunFolder
from danaus.app.run_record import Happening, happening, incarnation_of, replica_of

_RATE_STEPS = 20


class LineTail:
    """Reads the lines that are appended to a file of JSON lines; a torn one is read later."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._rest = b""

    def new_lines(self) -> list[dict[str, Any]]:
        """Return the whole lines since the last call."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                data = file.read()
        except FileNotFoundError:
            return []
        self._offset += len(data)
        *whole, self._rest = (self._rest + data).split(b"\n")
        return [line for raw in whole if (line := _decoded(raw)) is not None]


def _decoded(raw: bytes) -> dict[str, Any] | None:
    try:
        line = json.loads(raw)
    except ValueError:
        return None
    return line if isinstance(line, dict) else None


class Narrator:
    """Follow one run and show it.

    Args:
        folder: The run's.
        replica_ids: Its replicas.
        progress: Where it is shown.
        skip_past: Do not tell what was written before.
    """

    def __init__(
        self,
        folder: RunFolder,
        replica_ids: tuple[str, ...],
        progress: Progress,
        *,
        skip_past: bool = False,
    ) -> None:
        self._progress = progress
        self._journal = LineTail(folder.journal_path)
        self._metrics = [LineTail(folder.metrics_path(name)) for name in replica_ids]
        self._recent: deque[tuple[float, int]] = deque(maxlen=_RATE_STEPS)
        self._announced: dict[str, int] = {}
        self.step = 0
        self.members = 0
        """Replicas that took part in the newest committed step."""
        if skip_past:
            for tail in (self._journal, *self._metrics):
                tail.new_lines()

    def poll(self) -> None:
        """Show what is new."""
        for line in self._journal.new_lines():
            event = happening(line)
            if event is not None:
                self._tell(event)
        steps = [line for tail in self._metrics for line in tail.new_lines()]
        for line in sorted(steps, key=lambda each: each.get("step", 0)):
            self._advance(line)

    # -- steps ------------------------------------------------------------------------------

    def _advance(self, line: dict[str, Any]) -> None:
        step = int(line.get("step", 0))
        if step <= self.step:
            return
        self.step, self.members = step, int(line.get("num_replicas", 0))
        self._recent.append((float(line["mono"]), int(line["num_tokens"])))
        loss, rate = float(line["loss"]), self._tokens_per_s()
        self._progress.update(step, loss, rate, members=self.members)

    def _tokens_per_s(self) -> float:
        (first, _), (last, _) = self._recent[0], self._recent[-1]
        tokens = sum(num for _, num in list(self._recent)[1:])
        return tokens / (last - first) if last > first else 0.0

    # -- events -----------------------------------------------------------------------------

    def _tell(self, event: Happening) -> None:
        words = _WORDS.get(event.name)
        if event.name == Event.QUORUM_ANNOUNCED:
            self._tell_quorum(event)
        elif words is not None and not event.facts.get("expected"):
            text = words(event)
            if text:
                self._progress.event(text, _STYLES.get(event.name, ""))

    def _tell_quorum(self, event: Happening) -> None:
        now = {replica_of(m): incarnation_of(m) for m in event.names("members")}
        if now == self._announced:
            return
        entered = sorted(n for n, i in now.items() if self._announced.get(n) != i)
        entered = entered if self._announced else []
        self._announced = now
        words = f"quorum {event.text('epoch')}: {', '.join(sorted(now))}"
        if entered:
            words += f"; {' and '.join(entered)} in again after step {event.text('committed_step')}"
        self._progress.event(words, "green" if entered else "")


def _exit_words(event: Happening) -> str:
    how = event.text("signal") or f"exit code {event.text('exit_code')}"
    why = ", taken for hung" if event.text("kind") == "hang" else ""
    return f"{event.text('replica')} lost rank {event.text('rank')} ({how}{why}); survivors go on"


def _started_words(event: Happening) -> str:
    again = " again" if event.number("incarnation") else ""
    return f"{event.text('replica')} rank {event.text('rank')} started{again}: {_pid(event)}"


def _healed_words(event: Happening) -> str:
    size = (event.number("bytes") or 0.0) / 1e6
    donors = ", ".join(sorted({replica_of(d) for d in event.names("donors")}))
    return (
        f"{event.text('replica')} learned step {event.text('step')} from {donors}: {size:.1f} MB "
        f"in {1000 * (event.number('duration_s') or 0.0):.0f} ms"
    )


def _fault_words(event: Happening) -> str:
    return f"FAULT {event.text('text')}"


def _pid(event: Happening) -> str:
    return f"pid {event.text('pid')}"


def _resumed_words(event: Happening) -> str:
    step = event.text("step")
    where = f"the checkpoint of step {step}" if event.number("step") else "the seed's weights"
    return f"{event.text('replica')} goes on from {where}"


_WORDS: dict[str, Callable[[Happening], str]] = {
    Event.FAULT_INJECTED: _fault_words,
    Event.PROCESS_STARTED: _started_words,
    Event.PROCESS_EXITED: _exit_words,
    Event.HANG_NOTICED: lambda e: f"{e.text('replica')} stands still: {e.text('reason')}",
    Event.HEALED: _healed_words,
    Event.SERVICE_EXITED: lambda e: (
        f"{SERVICE} gone ({e.text('signal') or e.text('reason')}); members go on among themselves"
    ),
    Event.SERVICE_RESTARTED: lambda e: f"{SERVICE} started again: {_pid(e)}",
    Event.DIVERGENCE_FOUND: lambda e: f"fingerprints differ: {e.text('reason')}",
    Event.RUN_RESUMED: _resumed_words,
    Event.SUGGESTION: lambda e: e.text("text"),
    Event.START_FAILED: lambda e: f"{e.text('replica')} could not start: {e.text('reason')}",
    Event.CHECKPOINT_FAILED: lambda e: (
        f"no checkpoint of step {e.text('step')}: {e.text('reason')}"
    ),
}

_STYLES: dict[str, str] = {
    Event.FAULT_INJECTED: "bold red",
    Event.PROCESS_EXITED: "red",
    Event.SERVICE_EXITED: "red",
    Event.HANG_NOTICED: "red",
    Event.DIVERGENCE_FOUND: "red",
    Event.HEALED: "cyan",
    Event.SUGGESTION: "bold yellow",
}
