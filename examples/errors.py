"""How calls end that do not end well: what each caller is told, and what the owner.

python examples/errors.py
"""

from __future__ import annotations

import asyncio
import os
import threading

import danaus.actor
from danaus.actor import (
    Actor,
    ActorError,
    MeshFailure,
    Outcome,
    SupervisionError,
    ValueMesh,
    concurrent_endpoint,
    current_rank,
    endpoint,
    shutdown_context,
    this_host,
)


class Worker(Actor):
    """Divides, and leaves when it is told to."""

    @endpoint
    def divide(self, k: int) -> float:
        """Divide by the rank, which only some can."""
        return k / current_rank()["gpus"]

    @endpoint
    def leave(self) -> None:
        """End the whole process."""
        os._exit(3)

    @concurrent_endpoint
    async def wait(self) -> None:
        """Wait for what does not come, beside what else is called."""
        await asyncio.Event().wait()


def main() -> None:
    """Call three workers in ways that go wrong."""
    heard: list[MeshFailure] = []
    told = threading.Event()

    def hook(failure: MeshFailure) -> None:
        heard.append(failure)  # returning means that it is handled
        told.set()

    danaus.actor.unhandled_fault_hook = hook
    procs = this_host().spawn_procs(per_host={"gpus": 3})
    workers = procs.spawn("worker", Worker)

    try:
        workers.divide.call(6).get()
    except* ActorError as failed:  # one for each that raised
        print(f"raised: {[str(each.__cause__) for each in failed.exceptions]}")

    outcomes: ValueMesh[Outcome[float]] = workers.divide.settled(6).get()
    print(f"had all the same: {[each.value for _, each in outcomes if each.ok]}")

    try:
        workers.divide.call("six", 7)  # type: ignore[call-arg, arg-type]
    except TypeError as error:
        print(f"not sent: {error}")

    try:
        workers.slice(gpus=0).wait.with_options(timeout_s=0.1).call_one().get()
    except TimeoutError as error:
        print(f"too slow: {type(error).__name__}")

    try:
        workers.slice(gpus=1).leave.call_one().get()
    except SupervisionError as error:
        print(f"gone: {error.why}")
    told.wait(10.0)
    print(f"and its owner was told of {heard[0].mesh_name} at {dict(heard[0].points[0])}")
    shutdown_context()


if __name__ == "__main__":
    main()
