"""Progress: a bar where a terminal can show one, plain lines elsewhere."""

from __future__ import annotations

import io
import sys

import pytest
from rich.console import Console

from danaus.app.progress import Progress, run_console


class _Clock:
    def __init__(self) -> None:
        self.time = 100.0

    def now(self) -> float:
        return self.time


def _run(console: Console) -> None:
    clock = _Clock()
    with Progress(40, 3, console=console, clock=clock) as progress:
        for step in range(1, 41):
            clock.time += 0.5
            progress.update(
                step, loss=5.5 - step / 10, tokens_per_s=8213.4, members=3 - (step == 20)
            )
            if step == 20:
                progress.event("replica-1 [bold] was killed", style="red")


def _console(**options: object) -> tuple[Console, io.StringIO]:
    out = io.StringIO()
    environment = options.pop("environment", {})
    return Console(file=out, width=100, _environ=environment, **options), out  # type: ignore[arg-type]


def test_a_run_that_is_shown_on_a_full_disk_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    with open("/dev/full", "w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        _run(run_console())


def test_piped_output_is_plain_lines() -> None:
    console, out = _console()
    _run(console)

    lines = out.getvalue().splitlines()
    assert lines == [
        "step 1/40  loss 5.4000  8,213 tokens/s  3 of 3 replicas",
        "step 11/40  loss 4.4000  8,213 tokens/s  3 of 3 replicas",
        "  10.0 s  replica-1 [bold] was killed",
        "step 21/40  loss 3.4000  8,213 tokens/s  3 of 3 replicas",
        "step 31/40  loss 2.4000  8,213 tokens/s  3 of 3 replicas",
        "step 40/40  loss 1.5000  8,213 tokens/s  3 of 3 replicas",
    ]


def test_a_dumb_terminal_gets_plain_lines() -> None:
    console, out = _console(force_terminal=True, environment={"TERM": "dumb"})
    _run(console)

    assert "\r" not in out.getvalue()
    assert "\x1b[2K" not in out.getvalue()
    assert "step 40/40" in out.getvalue()


def test_a_terminal_gets_a_bar_and_events_above_it() -> None:
    console, out = _console(force_terminal=True, environment={"TERM": "xterm-256color"})
    _run(console)

    text = out.getvalue()
    assert "\x1b[2K" in text
    assert "40/40" in text
    assert "replica-1 [bold] was killed" in text
    assert "●●" in text


def test_no_color_means_no_colour() -> None:
    environment = {"TERM": "xterm-256color", "NO_COLOR": "1"}
    console, out = _console(force_terminal=True, environment=environment)
    _run(console)

    assert "\x1b[32m" not in out.getvalue()
    assert "\x1b[31m" not in out.getvalue()


@pytest.mark.parametrize("width", [20, 40, 60, 200])
def test_any_width_will_do(width: int) -> None:
    out = io.StringIO()
    environment = {"TERM": "xterm"}
    console = Console(file=out, width=width, force_terminal=True, _environ=environment)
    _run(console)

    assert out.getvalue()


def test_nothing_told_nothing_said() -> None:
    console, out = _console()
    with Progress(40, 3, console=console):
        pass

    assert out.getvalue() == ""
