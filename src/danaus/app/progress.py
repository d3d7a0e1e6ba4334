"""What a person sees while a run goes on: a bar on a terminal, plain lines elsewhere.

Owns ``Progress`` and the console of a run.  On a terminal it keeps one line at the bottom and
prints events above it; when output is piped, or the terminal can do nothing (``TERM=dumb``), each
event and now and then the step is a line of plain text.  It starts no thread: it draws when it is
told something.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Self

from rich import progress as bars
from rich.console import Console
from rich.text import Text

from danaus.core.clock import Clock, MonotonicClock
from danaus.core.patient_text import patient_text

_DRAW_EVERY_S = 0.1
_LINE_EVERY_S = 5.0
_WIDE, _WIDEST = 70, 100
_MOST_DOTS = 8


def run_console() -> Console:
    """Return a console on standard output for a run, which a full disk under it must not end."""
    try:
        fd = sys.stdout.fileno()
    except OSError:  # replaced by something that is no file
        return Console()
    return Console(file=patient_text(fd, encoding=sys.stdout.encoding))


class Progress:
    """Shows step, loss, tokens/s, live members and the last event of a run.

    Args:
        num_steps: Steps the run will take.
        num_replicas: Replicas when all are there.
        console: Where to print; default: standard output.
        title: Word in front of the bar.
        clock: Time for the stamps of events and for how often to draw.
    """

    def __init__(
        self,
        num_steps: int,
        num_replicas: int,
        *,
        console: Console | None = None,
        title: str = "step",
        clock: Clock | None = None,
    ) -> None:
        self.console = console or Console()
        self._num_steps = num_steps
        self._num_replicas = num_replicas
        self._title = title
        self._clock = clock or MonotonicClock()
        self._start = self._shown_at = self._clock.now()
        self._last_line = self._pending_line = ""
        self._bar: bars.Progress | None = None
        self._task = bars.TaskID(0)
        self._numbers = _Numbers(num_replicas, self.console)

    def resize(self, num_replicas: int) -> None:
        """Show that so many replicas are all, from now on."""
        self._num_replicas = self._numbers.num_replicas = num_replicas

    def __enter__(self) -> Self:
        if self.console.is_terminal and not self.console.is_dumb_terminal:
            self._bar = bars.Progress(
                bars.TextColumn("{task.description}", markup=False),
                _Steps(),
                bars.BarColumn(bar_width=None, complete_style="green", finished_style="green"),
                self._numbers,
                console=self.console,
                auto_refresh=False,
                expand=True,
            )
            self._task = self._bar.add_task(self._title, total=self._num_steps)
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.refresh()
            self._bar.stop()
            self._bar = None
        elif self._pending_line:
            self._line(self._pending_line)

    def update(
        self,
        step: int,
        loss: float,
        tokens_per_s: float,
        *,
        members: int,
        slow: Sequence[str] = (),
    ) -> None:
        """Show where the run is.

        Args:
            step: Steps committed so far.
            loss: Mean loss of that step, in nats per token.
            tokens_per_s: Of the whole run, recently; 0: not known yet.
            members: Replicas in the standing quorum.
            slow: Those that are slower than the others.
        """
        due = self._clock.now() - self._shown_at
        if self._bar is not None:
            self._bar.update(
                self._task,
                completed=step,
                loss=loss,
                tokens_per_s=tokens_per_s,
                members=members,
                slow=slow,
            )
            if due >= _DRAW_EVERY_S:
                self._shown_at = self._clock.now()
                self._bar.refresh()
            return
        rate = f"{tokens_per_s:,.0f} tokens/s  " if tokens_per_s else ""
        self._pending_line = (
            f"{self._title} {step}/{self._num_steps}  loss {loss:.4f}  "
            f"{rate}{members} of {self._num_replicas} replica{'s' * (self._num_replicas != 1)}"
            f"{_slow_words(slow)}"
        )
        if due >= _LINE_EVERY_S or not self._last_line:
            self._line(self._pending_line)

    def event(self, text: str, style: str = "") -> None:
        """Print something that happened, with the time since the start.

        Args:
            text: Words for a person; never markup.
            style: Rich style for terminals that show it.
        """
        stamp = f"{self._clock.now() - self._start:6.1f} s  "
        line = Text.assemble((stamp, "dim"), (text, style))
        self.console.print(line, soft_wrap=True, highlight=False)
        if self._bar is not None:
            self._bar.refresh()

    def _line(self, line: str) -> None:
        self._shown_at = self._clock.now()
        self._last_line, self._pending_line = line, ""
        self.console.print(line, markup=False, highlight=False, soft_wrap=True)


class _Steps(bars.ProgressColumn):
    """``120/400``."""

    def render(self, task: bars.Task) -> Text:
        return Text(f"{task.completed:.0f}/{task.total:.0f}", no_wrap=True)


class _Numbers(bars.ProgressColumn):
    """``loss 2.3145  8,213 tokens/s  ●●○ 2 of 3``; on a narrow terminal less of it."""

    def __init__(self, num_replicas: int, console: Console) -> None:
        super().__init__()
        self.num_replicas = num_replicas
        self._console = console

    def render(self, task: bars.Task) -> Text:
        facts, width = task.fields, self._console.width
        if "loss" not in facts:
            return Text("starting", style="dim", no_wrap=True)
        line = Text.assemble(("loss ", "dim"), f"{facts['loss']:.4f}", no_wrap=True)
        if width >= _WIDE and facts["tokens_per_s"]:
            line.append(f"  {facts['tokens_per_s']:,.0f}")
            line.append(" tokens/s", "dim")
        members = int(facts["members"])
        if self.num_replicas <= _MOST_DOTS:
            line.append("  ")
            line.append("●" * members, "green")
            line.append("○" * max(0, self.num_replicas - members), "red")
        if width >= _WIDEST or self.num_replicas > _MOST_DOTS:
            line.append(f" {members} of {self.num_replicas}", "dim")
        line.append(_slow_words(facts["slow"]), "yellow")
        return line


def _slow_words(slow: Sequence[str]) -> str:
    return f"  slow: {', '.join(slow)}" if slow else ""
