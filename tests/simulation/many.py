"""Very many schedules over all cores: ``python -m tests.simulation.many --schedules 100000``.

Each violation is printed with what replays it, and kept in a file; the exit code is 1 then.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
from collections.abc import Callable

from tests.simulation.campaigns import campaign
from tests.simulation.chaos import run_chaos
from tests.simulation.engine import Violation
from tests.simulation.lease_world import run_leased
from tests.simulation.plans import random_plan
from tests.simulation.world import run

FIRST = 10_000
"""The seeds below are for the tests of every day."""
CHUNK = 50
MOST_SHOWN = 20


def schedule(seed: int) -> str:
    """Run one random schedule; return what is wrong with it, nothing if all is well."""
    return _told(lambda: run(random_plan(seed)))


def leased(seed: int) -> str:
    """Run one random schedule of two candidates that agree by a lease, likewise."""
    return _told(lambda: run_leased(random_plan(seed)))


def campaign_of(seed: int) -> str:
    """Run one campaign of faults in the words of a real run, likewise."""
    return _told(lambda: run_chaos(*campaign(seed)))


def _told(act: Callable[[], object]) -> str:
    try:
        act()
    except Violation as violation:
        return str(violation)
    return ""


def main() -> int:
    options = _options()
    kinds = (
        (schedule, options.schedules, CHUNK),
        (leased, options.leased, CHUNK),
        (campaign_of, options.campaigns, 1),
    )
    failures = 0
    with multiprocessing.get_context("spawn").Pool(options.jobs) as pool:
        for act, number, chunk in kinds:
            began = time.monotonic()
            seeds = range(options.first, options.first + number)
            for told in pool.imap_unordered(act, seeds, chunk):
                if told:
                    failures += 1
                    if failures <= MOST_SHOWN:
                        print(told, flush=True)
            took_s = time.monotonic() - began
            if number:
                rate = number / took_s
                print(f"{number} x {act.__name__}: {took_s:.0f} s, {rate:.1f} a second", flush=True)
    print(f"{failures} violations")
    return 1 if failures else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--schedules", type=int, default=100_000)
    parser.add_argument("--leased", type=int, default=20_000)
    parser.add_argument("--campaigns", type=int, default=2000)
    parser.add_argument("--first", type=int, default=FIRST, help="the first seed")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
