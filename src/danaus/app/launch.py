"""Runs a training run under the eyes of a person: starts its controller, shows it, stops it.

Owns ``Launched`` (a controller that was started from this thread), ``watch`` (which waits for
runs and ends them when it is asked to), and ``run_training``, which the command line calls.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console

from danaus.actor.here import this_proc
from danaus.app.experiment import RunController, RunOrder
from danaus.app.narrator import Narrator
from danaus.app.opening import opening
from danaus.app.progress import Progress
from danaus.app.run_folder import RunFolder
from danaus.app.run_record import finished_words
from danaus.app.run_result import RunResult
from danaus.app.run_status import RunStatus
from danaus.app.settings import RunConfig
from danaus.app.stopping import STOPS, StopSignals
from danaus.core.clock import Deadline
from danaus.core.errors import ActorError, DanausError, InternalError

_POLL_S = 0.05
_STOP_LIMIT_S = 15.0
_STATUS_LIMIT_S = 5.0


class Launched:
    """A run whose controller lives in this process.

    Args:
        name: Name of the controller's actor.
        order: What to run; the folder must not be held.
    """

    def __init__(self, name: str, order: RunOrder) -> None:
        self.order = order
        self._controller = this_proc().spawn(name, RunController, order)
        self._future = self._controller.run.call_one()
        self._stopped = False

    def wait(self, limit_s: float) -> bool:
        """Wait for the end of the run, for so long; tell whether it has come."""
        with contextlib.suppress(TimeoutError):
            self._future.exception(timeout=limit_s)
            return True
        return False

    def result(self) -> RunResult | None:
        """Return how the run ended, None if it was stopped.

        Raises:
            DanausError: What ended it.
            OSError: The machine did not let it go on.
        """
        try:
            result: RunResult | None = self._future.get(timeout=_STOP_LIMIT_S)
            return result
        except ActorError as error:
            if isinstance(error.__cause__, DanausError | OSError):
                raise error.__cause__ from None
            raise

    def status(self) -> RunStatus:
        """Return what runs where."""
        status: RunStatus = self._controller.status.call_one().get(timeout=_STATUS_LIMIT_S)
        return status

    def ask_to_end(self, reason: str) -> None:
        """Have the run end; ``wait`` tells when nothing of it is left."""
        if not self._stopped and not self.wait(0.0):
            self._stopped = True
            self._controller.end.call_one(reason).get(timeout=_STATUS_LIMIT_S)

    def stop(self, reason: str) -> None:
        """End the run and wait until nothing of it is left."""
        self.ask_to_end(reason)
        self.wait(_STOP_LIMIT_S)


def watch(
    launched: Sequence[Launched],
    poll: Callable[[], None],
    *,
    signals: StopSignals,
    progress: Progress,
    number: int | None = None,
) -> None:
    """Call ``poll`` until runs have ended; end them all once a signal asks for that.

    Whoever asks twice does not wait until nothing is left of them: it ends without us (P-4).

    Args:
        launched: What is ended together.
        poll: Shows what is new.
        signals: What may ask for the end.
        progress: Where it is shown.
        number: How many of them to wait for, from the first; default: all.
    """
    try:
        while not _all_ended(launched[:number], _POLL_S) and not signals.asked:
            _show(poll, signals)
        _show(poll, signals)
    except BaseException:
        _end(launched, "an error in the controlling program", signals)
        raise
    if signals.asked:
        reason = STOPS[signals.asked]
        _show(lambda: progress.event(f"{reason}: stopping"), signals)
        _end(launched, reason, signals)


def _end(launched: Sequence[Launched], reason: str, signals: StopSignals) -> None:
    for each in launched:
        each.ask_to_end(reason)
    deadline = Deadline.after(_STOP_LIMIT_S)
    while not (_all_ended(launched, _POLL_S) or signals.hurried or deadline.passed):
        pass


def _all_ended(launched: Sequence[Launched], limit_s: float) -> bool:
    return sum(each.wait(limit_s / len(launched)) for each in launched) == len(launched)


def _show(poll: Callable[[], None], signals: StopSignals) -> None:
    try:
        poll()
    except OSError as error:
        if error.errno != errno.EIO:  # a terminal that is gone
            raise
        signals.hung_up()


def run_training(order: RunOrder, *, console: Console) -> int:
    """Run a training run to its end; return the exit code.

    Args:
        order: What to run; its folder exists and nobody holds it.
        console: Where to show it.
    """
    settings, folder = order.config, RunFolder.open(order.run_dir)
    for line in opening(settings, folder.path, order.text):
        say(console, line)
    if order.chaos is not None:
        say(console, f"chaos  {'; '.join(order.chaos.specs)} (seed {order.chaos.seed})")
    progress = Progress(settings.step.num_steps, settings.replicas, console=console)
    narrator = Narrator(folder, settings.replica_ids, progress, skip_past=order.resume)
    with StopSignals(detached=settings.detached) as signals:
        run = Launched("run", order)
        try:
            with progress:
                watch([run], narrator.poll, signals=signals, progress=progress)
        except OSError as error:
            raise error if folder.is_there() else folder.removed() from None
        try:
            result = None if signals.hurried else run.result()
        except ActorError:
            raise  # a mistake of our own: its traceback is what helps
        except DanausError as error:
            return _say_failed(error, folder)
    if result is None:
        return say_stopped(console, folder.path, asked=signals.asked, step=narrator.step)
    say(console, finished_words(result))
    return 0


def _say_failed(error: DanausError, folder: RunFolder) -> int:
    where = os.path.relpath(folder.path)
    words = f"danaus: the run failed: {error}; its journal and logs are in {where}"
    say(Console(stderr=True), words)
    return 1


def say_stopped(console: Console, path: Path, *, asked: signal.Signals | None, step: int) -> int:
    """Say how a run that was stopped goes on; return the exit code of a shell for that signal.

    Args:
        console: Where.
        path: The run's folder.
        asked: What asked for the end.
        step: Steps seen to be committed.
    """
    number = asked or signal.SIGINT
    where = f"after step {step}" if step else "before its first step"
    again = f"danaus train --resume {os.path.relpath(path)}"
    say(console, f"stopped {where} ({STOPS[number]}); go on with: {again}")
    return 128 + number


def say(console: Console, line: str, style: str = "") -> None:
    """Print one line as it is, however wide the terminal."""
    console.print(line, style=style, markup=False, highlight=False, soft_wrap=True)


def run_folder_of(settings: RunConfig) -> RunFolder:
    """Return the folder that the settings name."""
    if settings.run_dir is None:
        raise InternalError("P-4", "a run was launched without a folder")
    return RunFolder.open(settings.run_dir)
