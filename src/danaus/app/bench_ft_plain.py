"""The loop of ``danaus bench ft`` in plain DistributedDataParallel over Gloo, without any of us.

Usage: ``python -m danaus.app.bench_ft_plain STORE ME NUM_RANKS WIDTH COMPUTE_S NUM_STEPS``; says
the seconds of its steps.
"""

from __future__ import annotations

import sys
import time

import torch
import torch.distributed as dist

from danaus.app.bench_ft_replica import batch, network
from danaus.app.bench_processes import end_with_input, say


def _train(width: int, compute_s: float, num_steps: int) -> list[float]:
    model = torch.nn.parallel.DistributedDataParallel(network(width))
    optimizer = torch.optim.AdamW(model.parameters())
    inputs, targets = batch(width)
    spans: list[float] = []
    for _ in range(num_steps):
        began = time.perf_counter()
        if compute_s:
            time.sleep(compute_s)
        (model(inputs) - targets).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        spans.append(time.perf_counter() - began)
    return spans


def main() -> None:
    """Train beside the other ranks."""
    store, me, num_ranks, width, compute_s, num_steps = sys.argv[1:]
    end_with_input()
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{store}", rank=int(me), world_size=int(num_ranks)
    )
    spans = _train(int(width), float(compute_s), int(num_steps))
    dist.barrier()
    say(spans_s=spans)
    dist.destroy_process_group()  # its threads, left to the interpreter's end, abort now and then


if __name__ == "__main__":
    main()
