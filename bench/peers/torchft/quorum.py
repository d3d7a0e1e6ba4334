"""The quorum of each step, as a loop waits for it: a thread for each replica.

Usage: quorum.py NUM_REPLICAS NUM_ROUNDS   Says the seconds of one replica's rounds.
"""

from __future__ import annotations

import sys
import threading
import time
from datetime import timedelta

from said import end_with_input, leave, say
from torchft.coordination import LighthouseClient, LighthouseServer

LIMIT = timedelta(seconds=20)


def main() -> None:
    """Ask for one quorum after the other; nobody comes or goes."""
    num_replicas, num_rounds = int(sys.argv[1]), int(sys.argv[2])
    end_with_input()
    server = LighthouseServer(bind="[::]:0", min_replicas=num_replicas)
    barrier = threading.Barrier(num_replicas)
    spans: list[float] = []

    def ask(number: int) -> None:
        client = LighthouseClient(server.address(), connect_timeout=LIMIT)
        name = f"replica_{number}"
        client.heartbeat(name)
        for step in range(num_rounds):
            barrier.wait()
            began = time.perf_counter()
            client.quorum(
                replica_id=name,
                timeout=LIMIT,
                address=f"address_{number}",
                store_address="store",
                step=step,
                world_size=1,
                shrink_only=False,
            )
            if number == 0:
                spans.append(time.perf_counter() - began)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(num_replicas)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    say(spans_s=spans[1:])  # the first is formed, not found unchanged
    leave()


if __name__ == "__main__":
    main()
