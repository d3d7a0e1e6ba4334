"""A state from one process to another by their default transport, HTTP.

Usage: transfer.py NUM_MIB NUM_TIMES   Says how many bytes a second came, each time.
"""

from __future__ import annotations

import multiprocessing
import sys
import time
from datetime import timedelta
from multiprocessing.connection import Connection

import torch
from said import end_with_input, leave, say
from torchft.checkpointing import HTTPTransport

LIMIT = timedelta(seconds=120)
TENSOR_MIB = 64
STEP = 1


def state(num_mib: int) -> dict[str, torch.Tensor]:
    """Return so many bytes, in several tensors."""
    sizes = [min(TENSOR_MIB, num_mib - at) for at in range(0, num_mib, TENSOR_MIB)]
    return {f"layer.{at}": torch.full((size << 18,), 1.0) for at, size in enumerate(sizes)}


def serve(num_mib: int, pipe: Connection) -> None:
    """Serve until the other end of the pipe closes."""
    torch.set_num_threads(1)
    transport: HTTPTransport[dict[str, torch.Tensor]] = HTTPTransport(timeout=LIMIT, num_chunks=0)
    transport.send_checkpoint([1], step=STEP, state_dict=state(num_mib), timeout=LIMIT)
    pipe.send(transport.metadata())
    try:
        pipe.recv()
    except EOFError:
        leave()


def main() -> None:
    """Fetch the state again and again."""
    num_mib, num_times = int(sys.argv[1]), int(sys.argv[2])
    torch.set_num_threads(1)
    context = multiprocessing.get_context("spawn")
    near, far = context.Pipe()
    donor = context.Process(target=serve, args=(num_mib, far), daemon=True)
    donor.start()
    far.close()
    end_with_input()
    where = near.recv()
    transport: HTTPTransport[dict[str, torch.Tensor]] = HTTPTransport(timeout=LIMIT, num_chunks=0)
    rates = []
    for _ in range(num_times):
        began = time.perf_counter()
        got = transport.recv_checkpoint(0, where, STEP, LIMIT)
        rates.append((num_mib << 20) / (time.perf_counter() - began))
        assert all(bool((tensor == 1.0).all()) for tensor in got.values())
    near.close()
    donor.join(10)
    say(bytes_per_s=rates)
    leave()


if __name__ == "__main__":
    main()
