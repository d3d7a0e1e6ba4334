"""Processes with CPUs, environments and a first call of their own; what they write, told once.

python examples/spawning.py
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping

from danaus.actor import Actor, Point, current_rank, endpoint, shutdown_context, this_host


def prepare() -> None:
    """Run in each process before it takes any message."""
    os.environ["PREPARED"] = "yes"


def environment(point: Point) -> Mapping[str, str]:
    """Return what a process finds in its environment."""
    return {"LOCAL_RANK": str(point["gpus"])}


class Worker(Actor):
    """Looks at its process."""

    @endpoint
    def look(self) -> str:
        """Return what is there."""
        logging.getLogger(__name__).info("looking")
        names = [f"{name}={os.environ[name]}" for name in ("LOCAL_RANK", "PREPARED")]
        return f"rank {current_rank().rank}: {' '.join(names)}"


def main() -> None:
    """Start two processes on this host, look at them, and shut the host down."""
    host = this_host()
    procs = host.spawn_procs({"gpus": 2}, prepare, "w", proc_bind="cpus", env=environment)
    procs.logging_option(aggregate_window_sec=0.5, level=logging.INFO)
    workers = procs.spawn("worker", Worker)
    for line in workers.look.call().get().values():
        print(line)
    print(f"{len(procs.to_table().splitlines())} processes")
    host.shutdown().get()
    shutdown_context()
    print("all processes are gone, and then the host")


if __name__ == "__main__":
    main()
