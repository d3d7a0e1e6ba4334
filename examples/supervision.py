"""A worker is killed; its owner is told at once and starts it again, the others never notice.

    python examples/supervision.py

The owner is an actor too.  What it spawns belongs to it, and what happens to that arrives in its
``__supervise__``.
"""

from __future__ import annotations

import os
import signal
import threading

from danaus.actor import (
    Actor,
    ActorMesh,
    HostMesh,
    MeshFailure,
    ProcMesh,
    Restart,
    RestartBudget,
    SupervisionError,
    endpoint,
    shutdown_context,
    this_host,
    this_proc,
)

NUM_WORKERS = 3


class Worker(Actor):
    """Works until something happens to it."""

    @endpoint
    def work(self) -> None:
        """Run for hours."""
        threading.Event().wait()


class Owner(Actor):
    """Keeps its workers alive, within a budget."""

    def __init__(self, host: HostMesh) -> None:
        self.host = host
        self.budget = RestartBudget(Restart(intensity=3, period_s=60.0))
        self.procs: dict[str, ProcMesh] = {}
        self.workers: dict[str, ActorMesh[Worker]] = {}
        self.told = ""
        self.restarted = threading.Event()

    def start(self, name: str, incarnation: int) -> None:
        """Start a worker in a process of its own."""
        self.procs[name] = self.host.spawn_procs(name=name, incarnation=incarnation)
        self.workers[name] = self.procs[name].spawn("worker", Worker)
        self.workers[name].initialized.get(timeout=10.0)

    @endpoint
    def begin(self) -> dict[str, int]:
        """Start all workers; return their pids."""
        for number in range(NUM_WORKERS):
            self.start(f"w{number}", incarnation=0)
        return self.pids()

    @endpoint
    def after_restart(self) -> tuple[str, dict[str, int]]:
        """Wait until a worker was started again; return what was told of it, and all pids."""
        self.restarted.wait(timeout=10.0)
        return self.told, self.pids()

    @endpoint
    def lose(self, name: str) -> str:
        """Call a worker, kill it while the call waits, and say how that ends."""
        waiting = self.workers[name].work.call_one()
        os.kill(self.pids()[name], signal.SIGKILL)
        try:
            waiting.get()
        except SupervisionError as error:
            return str(error)
        return "it came to an end by itself"

    def pids(self) -> dict[str, int]:
        """Return each worker's pid."""
        return {name: pid for name, procs in self.procs.items() for pid in procs.pids().values()}

    def __supervise__(self, failure: MeshFailure) -> bool:
        """Start again what failed; say no when it fails too often."""
        self.told = str(failure)
        decision = self.budget.decide((0,), 1, failure.time_s)
        if decision.restart:
            self.start(failure.mesh, incarnation=1)
            self.restarted.set()
        return decision.restart

    def __cleanup__(self, exc: BaseException | None) -> None:
        """Run when it ends, whatever for; what it owned has ended before."""
        print(f"the owner ends {'in good order' if exc is None else f'for {exc}'}")


def main() -> None:
    """Spawn the owner here, kill one of its workers, and look at who is there afterwards."""
    owner = this_proc().spawn("owner", Owner, this_host())
    before = owner.begin.call_one().get()
    print(f"the call that waited: {owner.lose.call_one('w1').get()}")
    told, after = owner.after_restart.call_one().get()
    print(f"the owner was told: {told}")
    kept = sum(before[name] == after[name] for name in before)
    shutdown_context()
    print(f"{kept} of {NUM_WORKERS} workers went on, w1 was started again")


if __name__ == "__main__":
    main()
