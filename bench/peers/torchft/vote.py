"""Commit votes within one replica group, which is as far as they go: a thread for each rank.

Usage: vote.py NUM_RANKS NUM_ROUNDS   Says the seconds of one rank's rounds.
"""

from __future__ import annotations

import sys
import threading
import time
from datetime import timedelta

import torch.distributed as dist
from said import end_with_input, leave, say
from torchft.coordination import LighthouseServer, ManagerClient, ManagerServer

LIMIT = timedelta(seconds=20)


def main() -> None:
    """Vote."""
    num_ranks, num_rounds = int(sys.argv[1]), int(sys.argv[2])
    end_with_input()
    lighthouse = LighthouseServer(bind="[::]:0", min_replicas=1)
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    server = ManagerServer(
        replica_id="replica",
        lighthouse_addr=lighthouse.address(),
        hostname="127.0.0.1",
        bind="[::]:0",
        store_addr=f"127.0.0.1:{store.port}",
        world_size=num_ranks,
        heartbeat_interval=timedelta(milliseconds=100),
        connect_timeout=LIMIT,
        quorum_retries=0,
    )
    spans: list[float] = []

    def vote(rank: int) -> None:
        client = ManagerClient(server.address(), connect_timeout=LIMIT)
        for step in range(num_rounds):
            began = time.perf_counter()
            assert client.should_commit(rank, step, True, timeout=LIMIT)
            if rank == 0:
                spans.append(time.perf_counter() - began)

    threads = [threading.Thread(target=vote, args=(rank,)) for rank in range(num_ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    say(spans_s=spans)
    leave()


if __name__ == "__main__":
    main()
