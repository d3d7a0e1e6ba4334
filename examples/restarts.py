"""A worker dies again and again and is started again by a policy, until that is too often.

    python examples/restarts.py

Whoever holds a reference keeps it: the one who takes a worker's place answers there.
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
    Restart,
    SupervisionError,
    context,
    endpoint,
    shutdown_context,
    this_host,
    this_proc,
)


class Worker(Actor):
    """Knows which life this is."""

    @endpoint
    def look(self) -> tuple[int, int]:
        """Return the pid, and how often a process of this place was started before."""
        return os.getpid(), context().proc.incarnation


class Owner(Actor):
    """Spawns workers that come back, and hears of the one that does not."""

    def __init__(self, host: HostMesh) -> None:
        procs = host.spawn_procs({"r": 2}, name="w")
        policy = Restart("one_for_one", intensity=2, period_s=60.0)
        self.workers = procs.spawn("worker", Worker, restart=policy)
        self.reason = ""
        self.told = threading.Event()

    @endpoint
    def get_workers(self) -> ActorMesh[Worker]:
        """Return a reference."""
        return self.workers

    @endpoint
    def wait_until_told(self) -> str:
        """Return why a failure was not dealt with below."""
        self.told.wait(timeout=10.0)
        return self.reason

    def __supervise__(self, failure: MeshFailure) -> bool:
        """Take note of what the policy has given up."""
        self.reason = failure.reason.rpartition(": ")[2]
        self.told.set()
        return True


def look(worker: ActorMesh[Worker]) -> tuple[int, int]:
    """Ask a worker, or whoever has its place once it has died."""
    while True:
        try:
            return worker.look.call_one().get()
        except SupervisionError:  # it was killed with the question in its hands
            continue


def main() -> None:
    """Kill one worker three times."""
    owner = this_proc().spawn("owner", Owner, this_host())
    worker = owner.get_workers.call_one().get().slice(hosts=0, r=1)
    for _ in range(2):
        pid, life = look(worker)
        print(f"life {life} is killed")
        os.kill(pid, signal.SIGKILL)
        while look(worker)[1] == life:
            continue
    pid, life = look(worker)
    print(f"life {life} is killed")
    os.kill(pid, signal.SIGKILL)
    reason = owner.wait_until_told.call_one().get()
    shutdown_context()
    print(f"the third death in a row was told: {reason}")


if __name__ == "__main__":
    main()
