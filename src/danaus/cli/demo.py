"""``danaus demo``: a small Llama trained through real faults, and its undisturbed twin."""

from __future__ import annotations

import datetime as dt

from danaus.app.progress import run_console
from danaus.app.run_folder import default_run_path, refuse_used
from danaus.app.settings import DemoConfig
from danaus.cli.arguments import build, read, show_help, wants_help
from danaus.cli.train import begin, check


def run(arguments: list[str]) -> int:
    """Run the demo; return the exit code."""
    if wants_help(arguments):
        return show_help(DemoConfig, "demo")
    settings = build(DemoConfig, read(arguments, DemoConfig, "demo"), (), "demo")
    path = settings.run_dir or default_run_path("demo", dt.datetime.now().astimezone())
    refuse_used(path)
    text = check(settings)
    settings = begin(path, settings)
    # Loads the actor runtime, which neither help nor bad input needs.
    from danaus.app.demo import run_demo

    return run_demo(settings, text=text, console=run_console())
