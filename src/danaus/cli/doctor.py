"""``danaus doctor``: what is here, what is missing for what, and the line that installs it."""

from __future__ import annotations

import os
import platform
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from rich.console import Console
from rich.table import Table

from danaus.app.lab_tools import missing
from danaus.cli.arguments import build, read, show_help, wants_help
from danaus.platform.survey import TorchFacts, survey


@dataclass(frozen=True)
class DoctorCommand:
    """Tell what is installed here and what is missing for what; exit code 1 if the demo would not
    run.
    """


@dataclass(frozen=True)
class Finding:
    """One line of the doctor's.

    Args:
        what: The thing.
        found: What was found, in words.
        missing_for: What does not work because of it; empty if all is well.
        mend: The line that mends it.
        needed: Whether the demo needs it.
    """

    what: str
    found: str
    missing_for: str = ""
    mend: str = ""
    needed: bool = False


def run(arguments: list[str]) -> int:
    """Look around; return 0 if the demo would run here, 1 otherwise."""
    if wants_help(arguments):
        return show_help(DoctorCommand, "doctor")
    build(DoctorCommand, read(arguments, DoctorCommand, "doctor"), (), "doctor")
    findings = [*_machine(), *_torch(survey()), *_libraries(), *_lab()]
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column()
    for each in findings:
        mark = "[red]missing[/]" if each.missing_for else "[green]ok[/]"
        table.add_row(each.what, mark, each.found)
    console = Console(highlight=False)
    console.print(table)
    for each in findings:
        if each.missing_for:
            console.print(f"\n{each.missing_for} needs {each.what}:", markup=False)
            console.print(f"    {each.mend}", markup=False, soft_wrap=True)
    return int(any(each.needed and each.missing_for for each in findings))


def _machine() -> Iterator[Finding]:
    yield Finding("python", f"{platform.python_version()} ({sys.executable})")
    untried = {"linux": "", "darwin": ", made for, but never run on (docs/platforms.md)"}
    known = sys.platform in untried
    yield Finding(
        "system",
        f"{platform.system()} {platform.release()} {platform.machine()}"
        + untried.get(sys.platform, ""),
        missing_for="" if known else "everything",
        mend="" if known else "use Linux (a container or a virtual machine will do)",
        needed=True,
    )
    cores = os.cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    yield Finding("processors", f"{cores} for this process")
    free = shutil.disk_usage(Path.cwd()).free
    yield Finding("disk", f"{free / 1e9:.1f} GB free here, temporary files in {_temporary()}")
    source = Path(sysconfig.get_path("stdlib")) / "os.py"
    there = source.is_file()
    yield Finding(
        "text",
        f"the standard library's source, {source.parent}" if there else "no source in the library",
        missing_for="" if there else "the demo without --data.path",
        mend="" if there else "danaus demo --data.path FOLDER_OR_FILE",
    )


def _temporary() -> str:
    return tempfile.gettempdir()


def _torch(facts: TorchFacts) -> Iterator[Finding]:
    if facts.problem:
        yield Finding("torch", facts.problem, "training", facts.install, needed=True)
        return
    yield Finding("torch", f"{facts.version}, {facts.build}, with {', '.join(facts.collectives)}")
    devices = ", ".join(facts.devices) or "the CPU; no other device is seen"
    yield Finding("devices", devices)
    if facts.devices:
        yield Finding("", "this version of danaus computes on the CPU only")


def _libraries() -> Iterator[Finding]:
    wanted = {
        "numpy": ("reading the text", "pip install 'danaus[train]'", True),
        "safetensors": ("checkpoints", "pip install 'danaus[train]'", True),
        "matplotlib": ("the picture of a report", "pip install 'danaus[train]'", False),
        "uvloop": ("the fast event loop", "pip install uvloop", False),
    }
    for name, (use, line, needed) in wanted.items():
        version = _version(name)
        found = version or "not installed"
        yield Finding(name, found, "" if version else use, "" if version else line, needed=needed)


def _lab() -> Iterator[Finding]:
    reason = missing()
    found = reason or "root, iproute2 and nftables are there"
    to_do = reason.rpartition("; ")[2]
    yield Finding("namespaces", found, "danaus lab" if reason else "", to_do)


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""
