"""Runs a training run under the eyes of a person: starts its controller, shows it, stops it.

Owns ``Launched`` (a controller that was started from this thread) and ``run_training``, which
the command line calls.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from rich.console import Console

from danaus.actor.here import this_proc
from danaus.app.experiment import RunController, RunOrder, RunStatus
from danaus.app.narrator import Narrator
from danaus.app.progress import Progress
from danaus.app.run_folder import RunFolder
from danaus.app.run_result import RunResult
from danaus.app.settings import RunConfig
from danaus.collectives.tree import assign
from danaus.core.errors import ActorError, DanausError, InternalError

POLL_S = 0.05
_STOP_LIMIT_S = 15.0
_STATUS_LIMIT_S = 5.0
_SLOW_WARNING = 1.3


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
        """
        try:
            result: RunResult | None = self._future.get(timeout=_STOP_LIMIT_S)
            return result
        except ActorError as error:
            if isinstance(error.__cause__, DanausError):
                raise error.__cause__ from None
            raise

    def status(self) -> RunStatus:
        """Return what runs where."""
        status: RunStatus = self._controller.status.call_one().get(timeout=_STATUS_LIMIT_S)
        return status

    def hold_service(self, seconds: float) -> None:
        """Keep the quorum service away for so long at its next death."""
        self._controller.hold_service.call_one(seconds).get(timeout=_STATUS_LIMIT_S)

    def stop(self, reason: str) -> None:
        """End the run and wait until nothing of it is left."""
        if not self._stopped:
            self._stopped = True
            self._controller.end.call_one(reason).get(timeout=_STATUS_LIMIT_S)
        self.wait(_STOP_LIMIT_S)


@contextlib.contextmanager
def terminated_as_interrupt() -> Iterator[None]:
    """Make SIGTERM end this process as Ctrl-C does, for as long as the context is open."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before: Any = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def watch(launched: list[Launched], poll: Callable[[], None]) -> None:
    """Call ``poll`` until every run has ended; stop them all on Ctrl-C and raise it again."""
    try:
        with terminated_as_interrupt():
            while sum(each.wait(POLL_S / len(launched)) for each in launched) < len(launched):
                poll()
        poll()
    except KeyboardInterrupt:
        for each in launched:
            each.stop("Ctrl-C")
        raise


def run_training(settings: RunConfig, *, resume: bool, console: Console) -> int:
    """Run a training run to its end; return the exit code.

    Args:
        settings: Every setting; ``run_dir`` is a folder that exists and nobody holds.
        resume: The folder holds an earlier part of this run.
        console: Where to show it.
    """
    folder = run_folder_of(settings)
    console.print(f"run folder {folder.path}", highlight=False, soft_wrap=True)
    for line in cost_of_losses(settings):
        console.print(line, highlight=False)
    progress = Progress(settings.step.num_steps, settings.replicas, console=console)
    narrator = Narrator(folder, settings.replica_ids, progress, skip_past=resume)
    launched = Launched("run", RunOrder(folder.path, settings, resume=resume))
    with progress:
        watch([launched], narrator.poll)
    result = launched.result()
    if result is None:
        return 1
    console.print(
        f"step {result.step}, {result.num_restarts} restarts of a replica, sha256 {result.sha256}",
        highlight=False,
        soft_wrap=True,
    )
    return 0


def run_folder_of(settings: RunConfig) -> RunFolder:
    """Return the folder that the settings name."""
    if settings.run_dir is None:
        raise InternalError("P-4", "a run was launched without a folder")
    return RunFolder.open(settings.run_dir)


def cost_of_losses(settings: RunConfig) -> Iterator[str]:
    """Say how long a step takes with one and two replicas lost, as the leaves fall (T-3)."""
    whole = _longest(settings, settings.replicas)
    for lost in (1, 2):
        if settings.replicas - lost < 1:
            return
        ratio = _longest(settings, settings.replicas - lost) / whole
        warning = "  (more leaves would share it more evenly)" if ratio > _SLOW_WARNING else ""
        yield (
            f"with {lost} of {settings.replicas} replicas lost a step takes {ratio:.2f} times as "
            f"long{warning}"
        )


def _longest(settings: RunConfig, replicas: int) -> int:
    return max(len(run) for run in assign(settings.step.num_leaves, replicas))
