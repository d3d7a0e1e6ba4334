"""Actors on a mesh of processes: call all of them, some of them, one of them.

    python examples/mesh.py

Each actor lives in a worker process of its own on this machine.
"""

from __future__ import annotations

from danaus.actor import Actor, current_rank, endpoint, shutdown_context, this_host


class Counter(Actor):
    """Counts, and adds its rank to what it says."""

    def __init__(self, start: int) -> None:
        self.n = start

    @endpoint
    def add(self, k: int) -> int:
        """Count on by ``k``."""
        self.n += k
        return self.n + current_rank().rank

    @endpoint
    async def share(self, parts: int) -> float:
        """Return one of ``parts`` equal parts."""
        return self.n / parts


def main() -> None:
    """Spawn four processes with one actor each, and call them."""
    procs = this_host().spawn_procs(per_host={"gpus": 4})
    counters = procs.spawn("counter", Counter, 10)

    for point, value in counters.add.call(1).get():  # every one of them, answers by point
        print(f"gpus={point['gpus']} says {value}")

    one = counters.slice(gpus=2).add.call_one(5).get()  # exactly one
    print(f"gpus=2 alone says {one}")

    counters.add.broadcast(1)  # fire and forget; the next call comes after it all the same
    upper = counters.slice(gpus=slice(2, 4)).add.call(0).get()
    print(f"the upper two say {list(upper.values())}")

    outcomes = counters.share.settled(0).get()  # what failed does not hide what did not
    failed = sum(not outcome.ok for outcome in outcomes.values())
    print(f"{failed} of {len(outcomes)} cannot share with nobody")

    shutdown_context()
    print("all processes are gone")


if __name__ == "__main__":
    main()
