"""``danaus demo``: a small Llama trained through real faults, and its undisturbed twin."""

from __future__ import annotations

import dataclasses
import datetime as dt

from rich.console import Console

from danaus.app.run_folder import RunFolder, default_run_path
from danaus.app.settings import DemoConfig
from danaus.cli.arguments import build, read, show_help, wants_help
from danaus.cli.train import check


def run(arguments: list[str]) -> int:
    """Run the demo; return the exit code."""
    if wants_help(arguments):
        return show_help(DemoConfig, "demo")
    settings = build(DemoConfig, read(arguments, DemoConfig, "demo"), (), "demo")
    check(settings)
    path = settings.run_dir or default_run_path("demo", dt.datetime.now().astimezone())
    with RunFolder.create(path, settings) as folder:
        from danaus.app.demo import run_demo

        settings = dataclasses.replace(settings, run_dir=folder.path)
        code: int = run_demo(settings, folder, console=Console())
        return code
