"""Tells a person what happens in a run while it happens, from the files that the run writes.

Owns ``Narrator``.  It reads the journal and the replicas' metrics, so that it is on nobody's
path and tells of a run that it did not start just as well.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Sized
from typing import Any

from danaus.actor.agent_messages import OUT_OF_MEMORY
from danaus.app.events import SERVICE, Event
from danaus.app.line_tail import LineTail
from danaus.app.progress import Progress
from danaus.app.run_folder import RunFolder
from danaus.app.run_record import Happening, happening, incarnation_of, replica_of

_RATE_STEPS = 20
_LEAST_ROOM_BYTES = 1 << 16
_FULL = (
    "the disk of {} is full: training goes on; the ledger waits for room, checkpoints fail, lines "
    "of journal and metrics are lost and counted"
)
_ROOM_AGAIN = "the disk of {} has room again"


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
        self._progress, self._path = progress, folder.path
        self._is_full = False
        self._journal = LineTail(folder.journal_path)
        self._folder = folder
        self._metrics = {name: LineTail(folder.metrics_path(name)) for name in replica_ids}
        self._recent: deque[tuple[float, int]] = deque(maxlen=_RATE_STEPS)
        self._announced: dict[str, int] = {}
        self._held_since: float | None = None
        self._struck: set[tuple[str, int | None]] = set()
        self._slow: dict[str, str] = {}  # process -> replica
        self._last_told: dict[str, tuple[object, str]] = {}
        self.step = 0
        self.members = 0
        """Replicas that took part in the newest committed step."""
        if skip_past:
            # Also of replicas that have left or were added: one may start again under its name.
            for path in folder.metrics_path("any").parent.glob("*.jsonl"):
                self._metrics.setdefault(path.stem, LineTail(path))
            for tail in (self._journal, *self._metrics.values()):
                tail.new_lines()

    def poll(self) -> None:
        """Show what is new."""
        for line in self._journal.new_lines():
            event = happening(line)
            if event is not None:
                self._tell(event)
        steps = [line for tail in self._metrics.values() for line in tail.new_lines()]
        for line in sorted(steps, key=lambda each: each.get("step", 0)):
            self._advance(line)
        self._look_at_the_disk()

    def _look_at_the_disk(self) -> None:
        """Tell of a full disk: what is told here otherwise is read from it."""
        room = os.statvfs(self._path)
        is_full = room.f_bavail * room.f_frsize < _LEAST_ROOM_BYTES
        if is_full != self._is_full:
            self._is_full = is_full
            words, style = (_FULL, "bold red") if is_full else (_ROOM_AGAIN, "green")
            self._progress.event(words.format(self._path), style)

    # -- steps ------------------------------------------------------------------------------

    def _advance(self, line: dict[str, Any]) -> None:
        step = int(line.get("step", 0))
        if step <= self.step:
            return
        self.step, self.members = step, int(line.get("num_replicas", 0))
        self._recent.append((float(line["mono"]), int(line["num_tokens"])))
        loss, rate = float(line["loss"]), self._tokens_per_s()
        slow = sorted(set(self._slow.values()))
        self._progress.update(step, loss, rate, members=self.members, slow=slow)

    def _tokens_per_s(self) -> float:
        (first, _), (last, _) = self._recent[0], self._recent[-1]
        tokens = sum(num for _, num in list(self._recent)[1:])
        return tokens / (last - first) if last > first else 0.0

    # -- events -----------------------------------------------------------------------------

    def _tell(self, event: Happening) -> None:
        if event.name == Event.QUORUM_ANNOUNCED:
            self._tell_quorum(event)
            return
        if event.name == Event.CREW_SCALED:
            self._progress.resize(int(event.number("replicas") or 0))
        if event.name == Event.PROCESS_STARTED and event.replica not in self._metrics:
            self._metrics[event.replica] = LineTail(self._folder.metrics_path(event.replica))
        if event.name == Event.RUN_RESUMED:
            self.step = int(event.number("step") or 0)
        if event.name == Event.FAULT_INJECTED:
            self._struck.add((event.text("target"), event.incarnation))
        self._follow_slow(event)
        words = _WORDS.get(event.name)
        text = words(event) if words is not None and not event.facts.get("expected") else ""
        if text and self._is_news(event, text):
            self._progress.event(text + self._blamed(event), _STYLES.get(event.name, ""))

    def _follow_slow(self, event: Happening) -> None:
        """Know who is slow now."""
        process = event.text("process_id")
        if event.name == Event.STRAGGLER_FOUND:
            self._slow[process] = event.replica
        elif event.name in (Event.STRAGGLER_RECOVERED, Event.PROCESS_EXITED):
            self._slow.pop(process, None)

    def _is_news(self, event: Happening, text: str) -> bool:
        """Tell whether this was not told before, by another replica that does the same."""
        if event.name not in (Event.RUN_RESUMED, Event.STEP_REFUSED):
            return True
        known, now = self._last_told.get(event.name), (event.facts.get("term"), text)
        self._last_told[event.name] = now
        return known != now

    def _blamed(self, event: Happening) -> str:
        """Return words for a death that danaus did not cause.

        The kernel counts for the whole machine whom it ends for want of memory, so where a fault
        on purpose explains the death, that count explains nothing.
        """
        if event.name != Event.PROCESS_EXITED or not event.text("signal"):
            return ""
        struck = (event.replica, event.incarnation) in self._struck
        if struck or event.text("kind") == "hang" or _was_silent(event):
            return ""
        wants_memory = event.text("reason").startswith(OUT_OF_MEMORY)
        return f": most likely {OUT_OF_MEMORY}" if wants_memory else ": a fault from outside"

    def _tell_quorum(self, event: Happening) -> None:
        now = {replica_of(m): incarnation_of(m) for m in event.names("members")}
        before, self._announced = self._announced, now
        held_since = self._held_since
        is_held = bool(event.facts.get("hold"))
        self._held_since = (held_since or event.time) if is_held else None
        if now == before or event.facts.get("finished"):
            return
        everyone = _listed(now)
        epoch = f"(quorum {event.text('epoch')})"
        entered = [n for n, i in now.items() if before and before.get(n) != i]
        left = [n for n in before if n not in now]
        if not before:
            words = f"{everyone} train{_s(now)} {epoch}"
        elif left and not entered:
            goes = "goes" if len(now) == 1 else "go"
            words = f"{everyone} {goes} on without {_listed(left)} {epoch}{_out_of_reach(event)}"
        else:
            step = event.text("committed_step")
            words = f"{_listed(entered)} take{_s(entered)} part again after step {step} {epoch}"
            if held_since is not None:
                words += f"; the others waited {1000 * (event.time - held_since):.0f} ms for it"
        self._progress.event(words, "green" if entered else "")


def _out_of_reach(event: Happening) -> str:
    """Return why somebody was left behind whose end is not known, in the service's words."""
    parts = event.text("reason").split("; ")
    return "".join(f": {part}" for part in parts if " is out of reach " in part)


def _listed(names: Iterable[str]) -> str:
    """Return ``a``, ``a and b`` or ``a, b and c``."""
    *most, last = sorted(names)
    return f"{', '.join(most)} and {last}" if most else last


def _s(names: Sized) -> str:
    return "s" if len(names) == 1 else ""


def _was_silent(event: Happening) -> bool:
    """Tell whether danaus ended it because no heartbeat came."""
    return event.text("reason").startswith("silent for ")


def _exit_words(event: Happening) -> str:
    if event.text("kind") == "host_lost":
        return f"{_worker(event)} is gone with its host"
    code = event.text("exit_code")  # none: it never came up
    how = event.text("signal") or (f"exit code {code}" if code else event.text("reason"))
    why = ", as it hung" if event.text("kind") == "hang" else ""
    if _was_silent(event):
        why = f", {event.text('reason').partition(' (')[0]}"
    return f"{_worker(event)} is dead ({how}{why})"


def _worker(event: Happening) -> str:
    """Return which process it is, by rank where the replica has several."""
    rank = event.number("rank")
    return f"{event.replica} rank {rank:.0f}" if rank else event.replica


def _started_words(event: Happening) -> str:
    again = " again" if event.number("incarnation") else ""
    return f"{_worker(event)} started{again}: {_pid(event)}"


def _healed_words(event: Happening) -> str:
    size = (event.number("bytes") or 0.0) / 1e6
    donors = _listed({replica_of(d) for d in event.names("donors")} or {"its peers"})
    took_ms = 1000 * (event.number("duration_s") or 0.0)
    return (
        f"{event.replica} learned step {event.text('step')} from {donors}: "
        f"{size:.1f} MB in {took_ms:.0f} ms"
    )


def _caught_up_words(event: Happening) -> str:
    steps = event.number("steps") or 0.0
    if not steps:
        return ""
    donors = _listed({replica_of(d) for d in event.names("donors")} or {"its peers"})
    what = "1 step" if steps == 1 else f"{steps:.0f} steps"
    step = event.text("step")
    return f"{event.replica} caught up to step {step} by the gradients of {donors}: {what}"


def _repaired_words(event: Happening) -> str:
    took_s = event.number("duration_s") or 0.0
    new = f"{event.replica} has a new rank {event.text('rank')} after {took_s:.1f} s"
    return f"{new}; what is left of it has kept process and state"


def _rank_healed_words(event: Happening) -> str:
    """Return words for what no line about the whole replica tells."""
    if event.text("what") != "state" or not event.number("rank"):
        return ""
    size = (event.number("bytes") or 0.0) / 1e6
    return f"{_worker(event)} learned step {event.text('step')}: {size:.1f} MB"


def _pid(event: Happening) -> str:
    return f"pid {event.text('pid')}"


def _pids(event: Happening) -> str:
    found = event.facts.get("pids")
    return ", ".join(map(str, found)) if isinstance(found, list) else "unknown"


def _adopted_words(event: Happening) -> str:
    living, gone = event.facts.get("living"), event.names("gone")
    words = _listed(living) if isinstance(living, dict) and living else "nothing"
    return f"{words}; {_listed(gone)} start again" if gone else words


def _resumed_words(event: Happening) -> str:
    step = event.text("step")
    where = f"the checkpoint of step {step}" if event.number("step") else "the seed's weights"
    return f"all go on from {where}"


def _diverged_words(event: Happening) -> str:
    wrong = {replica_of(m) for m in event.names("minority")}
    whose = f", in {_listed(wrong)}" if wrong else ""
    _, _, healing = event.text("reason").rpartition(": ")
    return f"the vote finds other bits after step {event.text('step')}{whose}: {healing}"


_WORDS: dict[str, Callable[[Happening], str]] = {
    Event.RUN_ADOPTED: lambda e: f"another controller goes on with what lives: {_adopted_words(e)}",
    Event.FAULT_INJECTED: lambda e: f"FAULT {e.text('text')}",
    Event.FAULT_MISSED: lambda e: f"fault missed: {e.text('kind')}: {e.text('reason')}",
    Event.FAULT_LIFTED: lambda e: (
        f"{e.text('kind')} of {e.text('target')} "
        + (f"cannot be undone: {e.text('reason')}" if e.text("reason") else "is over")
    ),
    Event.PROCESS_STARTED: _started_words,
    Event.PROCESS_EXITED: _exit_words,
    Event.HANG_NOTICED: lambda e: (
        f"{e.replica} hangs: no progress for {e.number('still_s') or 0.0:.1f} s"
    ),
    Event.LEARNING_STARTED: lambda e: (
        f"{e.replica} learns step {e.text('step')} while the others go on"
        if e.facts.get("trails")
        else ""
    ),
    Event.HEALED: _healed_words,
    Event.CAUGHT_UP: _caught_up_words,
    Event.RANK_REPAIRED: _repaired_words,
    Event.RANK_NOT_REPAIRED: lambda e: f"all of {e.replica} is started again: {e.text('reason')}",
    Event.RANK_HEALED: _rank_healed_words,
    Event.LEAVE_ASKED: lambda e: (
        f"{e.replica} is to leave after the step in hand: {e.text('reason')}"
    ),
    Event.REPLICA_LEFT: lambda e: (
        f"{e.replica} has left after step {e.text('step')}; no step is lost"
        + (", its state is on the disk" if e.facts.get("saved") else "")
    ),
    Event.SPARE_USED: lambda e: f"{e.text('spare')} becomes {e.replica}",
    Event.SPARE_LOST: lambda e: f"{e.text('spare')} is lost: {e.text('reason')}",
    Event.CREW_SCALED: lambda e: (
        f"scaled from {e.text('was')} to {e.text('replicas')} replicas"
        + (f": {_listed(e.names('start'))} start" if e.names("start") else "")
        + (f": {_listed(e.names('drain'))} leave" if e.names("drain") else "")
    ),
    Event.ROLL_BEGAN: lambda e: f"{e.text('host')} is to be restarted",
    Event.ROLL_ENDED: lambda e: f"{e.text('host')} is restarted, its replicas are back",
    Event.HOST_LEAVING: lambda e: f"{e.text('host')} is about to end: {e.text('reason')}",
    Event.HOST_JOINED: lambda e: (
        f"{e.text('host')} is back after {e.number('away_s') or 0.0:.1f} s"
        if e.number("away_s")
        else ""
    ),
    Event.HOST_LOST: lambda e: e.text("reason"),
    Event.CUT_OFF: lambda _: "no host answers: this machine is cut off; training goes on there",
    Event.REACHED_AGAIN: lambda _: "hosts answer again",
    Event.HOST_WAITED_FOR: lambda e: (
        f"{e.replica} waits for {e.text('host')}, away for {e.number('away_s') or 0.0:.0f} s: "
        f"{e.text('reason')}"
    ),
    Event.SERVICE_EXITED: lambda e: (
        f"{SERVICE} is dead ({e.text('signal') or e.text('reason')}); training goes on without it"
    ),
    Event.SERVICE_RESTARTED: lambda e: f"{SERVICE} started again: {_pid(e)}",
    Event.SERVICE_SILENT: lambda e: f"{SERVICE} does not answer; it is killed",
    Event.CONTROLLER_RESTARTED: lambda e: (
        f"the watchdog starts the controller again: {_pid(e)}; {e.text('reason')}"
    ),
    Event.WATCHDOG_EXITED: lambda e: f"the watchdog is gone: {e.text('reason')}",
    Event.STRAGGLER_FOUND: lambda e: f"{_worker(e)} is slow: it {e.text('reason')}",
    Event.STRAGGLER_RECOVERED: lambda e: f"{_worker(e)} is as fast as the others again",
    Event.MISCOMPUTATION_FOUND: lambda e: (
        f"{_worker(e)} computes wrongly, as two others find: {e.text('reason')}"
    ),
    Event.REPLICA_QUARANTINED: lambda e: (
        f"{e.replica} stays out, the others go on: {e.text('reason')}"
    ),
    Event.DIVERGENCE_FOUND: _diverged_words,
    Event.STEP_REFUSED: lambda e: f"step {e.text('step')} is tried again: {e.text('reason')}",
    Event.RUN_RESUMED: _resumed_words,
    Event.SUGGESTION: lambda e: e.text("text"),
    Event.REPLICA_FAILED: lambda e: f"{e.replica} failed: {e.text('reason')}",
    Event.PROCESS_STUCK: lambda e: (
        f"{e.replica} (pid {_pids(e)}) cannot be ended: {e.text('reason')}"
    ),
    Event.CHECKPOINT_FAILED: lambda e: (
        f"no checkpoint of step {e.text('step')}: {e.text('reason')}"
    ),
    Event.CHECKPOINT_SKIPPED: lambda e: (
        f"no checkpoint of step {e.text('step')}: {e.text('reason')}"
    ),
    Event.CHECKPOINT_IN_LINE: lambda e: f"checkpoints hold up {e.replica}: {e.text('reason')}",
    Event.CHECKPOINT_REFUSED: lambda e: f"{e.replica} cannot go on from it: {e.text('reason')}",
    Event.DONOR_FAILED: lambda e: (
        f"{e.replica} asks for step {e.text('step')} again, {e.text('donor')} failed it: "
        f"{e.text('reason')}"
    ),
}

_STYLES: dict[str, str] = {
    Event.FAULT_INJECTED: "bold red",
    Event.PROCESS_EXITED: "red",
    Event.SERVICE_EXITED: "red",
    Event.HANG_NOTICED: "red",
    Event.STRAGGLER_FOUND: "yellow",
    Event.MISCOMPUTATION_FOUND: "bold red",
    Event.REPLICA_QUARANTINED: "bold red",
    Event.DIVERGENCE_FOUND: "red",
    Event.STEP_REFUSED: "red",
    Event.PROCESS_STUCK: "red",
    Event.CHECKPOINT_REFUSED: "red",
    Event.DONOR_FAILED: "red",
    Event.REPLICA_FAILED: "red",
    Event.HOST_LOST: "red",
    Event.CUT_OFF: "red",
    Event.HEALED: "cyan",
    Event.CAUGHT_UP: "cyan",
    Event.RANK_REPAIRED: "cyan",
    Event.RANK_NOT_REPAIRED: "yellow",
    Event.RANK_HEALED: "cyan",
    Event.REPLICA_LEFT: "cyan",
    Event.SUGGESTION: "bold yellow",
}
