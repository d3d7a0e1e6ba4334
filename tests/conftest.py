"""What holds for every test: nothing is left behind, and property tests run at any load."""

from __future__ import annotations

import asyncio
import gc
import itertools
import os
import time
from collections import Counter, defaultdict
from pathlib import Path

import pytest
import uvloop
from hypothesis import HealthCheck, settings

from danaus.testing.leaks import MARK, LeakCheck

TESTS = Path(__file__).parent
GRACE_S = 5.0
SUITE_LIMIT_S = 600.0
UNIT_LIMIT_S = 0.1
WATCHED = ("procs", "faults", "clusters")

# Deadlines of single examples measure the machine's load, not our code.
settings.register_profile(
    "danaus", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("danaus")

_numbers = itertools.count()
_seconds: dict[str, float] = defaultdict(float)
_counts: Counter[str] = Counter()
_slow_units: list[tuple[float, str]] = []
_started = time.monotonic()
gc.disable()  # until all is collected: imports leave next to nothing behind


def _folder(path: Path) -> str:
    """Return the part of the suite that a test file belongs to: ``procs``, ``unit/wire``, …"""
    parts = path.relative_to(TESTS).parts[:-1]
    return "/".join(parts[:2]) or "whole project"


@pytest.fixture(scope="session")
def _opened_for_good():
    """Open what a process's first event loop opens once and keeps."""
    for new_loop in (asyncio.new_event_loop, uvloop.new_event_loop):
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(asyncio.sleep(0))


@pytest.fixture
def no_leaks(monkeypatch, _opened_for_good):
    """Fail the test if a process, thread or descriptor outlives it."""
    mark = f"{os.getpid()}-{next(_numbers)}"
    monkeypatch.setenv(MARK, mark)
    check = LeakCheck(mark)
    yield check
    found = check.leaks(GRACE_S)
    check.kill()
    if found:
        pytest.fail("left behind:\n  " + "\n  ".join(found), pytrace=False)


@pytest.fixture(autouse=True)
def _nothing_outlives_a_test_of_processes(request):
    if request.path.relative_to(TESTS).parts[0] in WATCHED:
        request.getfixturevalue("no_leaks")


def pytest_collection_finish() -> None:
    """Let the collector look at what tests make only, not again and again at all modules."""
    gc.freeze()
    gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Have the tests that make labs run one after the other: some count what is on the machine."""
    for item in items:
        if "Lab" in dir(getattr(item, "module", None)) or "lab" in item.path.parts:
            item.add_marker(pytest.mark.xdist_group("lab"))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    folder = _folder(TESTS / report.nodeid.partition("::")[0].removeprefix("tests/"))
    _seconds[folder] += report.duration
    if report.when == "call":
        _counts[folder] += 1
        if folder.startswith("unit") and report.duration > UNIT_LIMIT_S:
            _slow_units.append((report.duration, report.nodeid))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say where the time went."""
    terminalreporter.section("time")
    for folder, seconds in sorted(_seconds.items()):
        terminalreporter.line(f"{seconds:7.1f} s  {_counts[folder]:4d} tests  {folder}")
    total = time.monotonic() - _started
    terminalreporter.line(f"{total:7.1f} s  of {SUITE_LIMIT_S:.0f} s that the suite may take")
    if _slow_units:
        terminalreporter.line(f"{len(_slow_units)} unit tests over {UNIT_LIMIT_S} s, the slowest:")
        for seconds, name in sorted(_slow_units, reverse=True)[:5]:
            terminalreporter.line(f"{seconds:7.2f} s  {name}")
