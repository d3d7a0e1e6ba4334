"""Ways to get answers: as they come, from one of several, through a port, combined into one.

python examples/messaging.py
"""

from __future__ import annotations

from danaus.actor import (
    Accumulator,
    Actor,
    Channel,
    Port,
    current_rank,
    endpoint,
    send,
    shutdown_context,
    this_host,
    wait_all,
)


class Worker(Actor):
    """Squares numbers, and says when it is told to."""

    def __init__(self) -> None:
        self.waiting: list[Port[str]] = []

    @endpoint(idempotent=True)
    def square(self, k: int) -> int:
        """Return the square; to compute it twice does no harm."""
        return k * k + current_rank().rank

    @endpoint(explicit_response_port=True)
    def ring(self, port: Port[str]) -> None:
        """Answer later: whoever holds the port can."""
        self.waiting.append(port)

    @endpoint
    def open_door(self) -> int:
        """Answer all who wait."""
        for port in self.waiting:
            port.send("come in")
        return len(self.waiting)


def main() -> None:
    """Spawn three workers and call them in each way."""
    workers = this_host().spawn_procs(per_host={"gpus": 3}).spawn("worker", Worker)

    for reply in workers.square.stream(2):  # whoever is first
        print(f"a worker says {reply.get()}")

    some = [workers.square.choose(k) for k in range(4)]  # whoever has least to do
    print(f"four answers: {len(wait_all(some).get())}")

    tried = workers.square.with_options(timeout_s=10.0, retries=2).call(3).get()
    print(f"tried up to three times: {list(tried.values())}")

    port, receiver = Channel[int].open()  # a port pickles, and can be sent to from anywhere
    send(workers.square, (4,), port=port)
    ranked = receiver.ranked()
    print(f"through a port, with ranks: {sorted(ranked.recv().get() for _ in range(3))}")

    total = Accumulator(workers.square, 0, lambda so_far, value: so_far + value)
    print(f"the sum of all: {total.accumulate(5).get()}")

    one = workers.slice(gpus=0)
    waiting = one.ring.call_one()
    one.open_door.call_one().get()
    print(f"who rang heard: {waiting.get()}")

    shutdown_context()


if __name__ == "__main__":
    main()
