"""The demo: a small Llama is trained through real faults, beside the same training undisturbed.

Owns the script of faults and the course of a demo.  The faults are real signals to real processes;
how it is judged is ``verdict``'s.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from rich.console import Console

from danaus.app.campaign import Campaign
from danaus.app.chaos import FaultPlan
from danaus.app.chaos_fault import Fault
from danaus.app.chaos_inside import make_inside
from danaus.app.events import Event, FaultKind
from danaus.app.experiment import RunOrder
from danaus.app.launch import Launched, run_folder_of, say, say_stopped, watch
from danaus.app.narrator import Narrator
from danaus.app.opening import opening
from danaus.app.progress import Progress
from danaus.app.run_folder import RunFolder
from danaus.app.settings import DemoConfig, fleet_of, training_of
from danaus.app.stopping import StopSignals
from danaus.app.undisturbed import alone
from danaus.app.verdict import Ending, ending_of, show
from danaus.core.journal import Journal

_AWAY = "kill_coordinator:for=0.7s"
_REFERENCE_NICENESS = 5


class Script:
    """Strike a run at stated moments, each time once everybody is back.

    Args:
        campaign: What strikes; its own plan is empty.
        settings: The demo's.
        suggest: Invites whoever watches to strike this replica themselves.
    """

    def __init__(
        self, campaign: Campaign, settings: DemoConfig, suggest: Callable[[int], None]
    ) -> None:
        self._campaign, self._num_steps = campaign, settings.step.num_steps
        last = settings.replicas - 1
        self._hits: list[tuple[float, Callable[[], None]]] = [
            (0.10, lambda: campaign.strike_now("kill:replica=1")),
            (0.30, lambda: campaign.strike_now(f"hang:replica={last}")),
            (0.55, lambda: campaign.strike_now(_AWAY, "kill:replica=0")),
            (0.75, lambda: suggest(last)),
        ]
        if settings.sabotage:
            self._hits = []

    def poll(self) -> None:
        """Strike if it is time."""
        self._campaign.look()
        due = self._hits and self._campaign.step >= self._hits[0][0] * self._num_steps
        if due and self._campaign.all_back:
            self._hits.pop(0)[1]()


def run_demo(settings: DemoConfig, *, text: str, console: Console) -> int:
    """Run the demo; return the exit code: 0 if both runs end with the same bits.

    Args:
        settings: The demo's; ``run_dir`` is a folder that exists and nobody holds.
        text: Where the data comes from, in words.
        console: Where to show it.
    """
    folder = run_folder_of(settings)
    for line in (*opening(settings, folder.path, text), *_plan(settings)):
        say(console, line)
    orders = _order(settings, folder, text), reference_order(settings, folder, text)
    with StopSignals() as signals:
        runs = Launched("demo", orders[0]), Launched("undisturbed", orders[1])
        path, step = folder.path, _show_run(runs, settings, console, signals=signals)
        if not signals.asked and not runs[1].wait(0.0):
            path = folder.undisturbed
            step = _show_reference(runs, step, console, signals=signals)
        ends = [Ending() if signals.hurried else ending_of(each) for each in runs]
    if signals.asked and not all(end.known for end in ends):
        return say_stopped(console, path, asked=signals.asked, step=step)
    return show(folder, *ends, console=console)


Runs = tuple[Launched, Launched]
"""The run that is hit, and the undisturbed one."""


def _show_run(runs: Runs, settings: DemoConfig, console: Console, *, signals: StopSignals) -> int:
    """Hit the run and show it until it ends; return the step that it has come to."""
    folder = run_folder_of(settings)
    progress = Progress(settings.step.num_steps, settings.replicas, console=console)
    narrator = Narrator(folder, settings.replica_ids, progress)
    with Campaign(folder, FaultPlan(), fleet_of(settings)) as campaign, progress:
        script = Script(campaign, settings, lambda place: _suggest(folder, campaign, place))

        def poll() -> None:
            narrator.poll()
            if not runs[0].wait(0.0):
                script.poll()

        watch(runs, poll, signals=signals, progress=progress, number=1)
    return narrator.step


def _suggest(folder: RunFolder, campaign: Campaign, place: int) -> None:
    """Invite whoever watches to strike for themselves."""
    pid, replica_id = campaign.worker_pid(place), f"replica-{place}"
    with Journal(folder.journal_path) as journal:
        journal.record(
            Event.SUGGESTION,
            text=f"now try: kill -9 {pid}   (in another terminal; a worker of {replica_id})",
            pid=pid,
            replica=replica_id,
        )


def _show_reference(runs: Runs, step: int, console: Console, *, signals: StopSignals) -> int:
    """Show the undisturbed run until it can be compared; return the step that it has come to."""
    reference = runs[1].order
    num_steps = reference.config.step.num_steps
    failed = ending_of(runs[0]).error is not None
    say(console, "waiting for the undisturbed run beside it, which has given way so far")
    progress = Progress(num_steps, 1, console=console, title="undisturbed")
    folder = RunFolder.open(reference.run_dir)
    narrator = Narrator(folder, reference.config.replica_ids, progress, skip_past=True)

    def poll() -> None:
        narrator.poll()
        if failed and narrator.step >= step:
            runs[1].ask_to_end("the run beside it has ended")

    with progress:
        watch(runs, poll, signals=signals, progress=progress)
    return narrator.step


def _plan(settings: DemoConfig) -> Iterator[str]:
    """Say what will happen."""
    if settings.sabotage:
        yield f"plan   one bit of {settings.replica_ids[-1]}'s parameters is flipped;"
    else:
        yield "plan   workers and the quorum service are killed, a worker is made to hang;"
    yield "       beside it runs the same training undisturbed, to compare every bit of the result"


def _order(settings: DemoConfig, folder: RunFolder, text: str) -> RunOrder:
    observers = {}
    if settings.sabotage:
        step = max(1, settings.step.num_steps // 3)
        flip = Fault(kind=FaultKind.FLIP_BIT, at_step=step)
        observers = {settings.replica_ids[-1]: (make_inside(flip),)}
    return RunOrder(folder.path, settings, text=text, heal=settings.heal, observers=observers)


def reference_order(settings: DemoConfig, folder: RunFolder, text: str) -> RunOrder:
    """The same training by one replica that nothing happens to: the bits must not care."""
    reference = alone(training_of(settings), folder.undisturbed, hosts=settings.hosts)
    RunFolder.create(folder.undisturbed, reference).release()
    return RunOrder(folder.undisturbed, reference, text=text, niceness=_REFERENCE_NICENESS)
