"""Two replicas train apart and meet every ten steps (DiLoCo); one is killed, comes back and learns.

    python examples/diloco.py

Each replica is a process with data of its own.  What they have agreed on is the same at both.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from multiprocessing.connection import Connection
from typing import Any

import torch
from torch import nn

from danaus.ft import DiLoCo, LighthouseServer, Manager

SYNC_EVERY, MEETINGS = 10, 20
KILLED_IN_STEP = 95


def train(name: str, address: str, secret: str, *, dies: bool, tell: Connection) -> None:
    """Train one replica; tell what it has come to."""
    torch.set_num_threads(1)
    torch.manual_seed(ord(name))
    model = nn.Sequential(nn.Linear(8, 64), nn.GELU(), nn.Linear(64, 1))
    inner = torch.optim.AdamW(model.parameters(), lr=0.01)
    outer = torch.optim.SGD(model.parameters(), lr=0.7, momentum=0.9, nesterov=True)
    losses, num_steps = [0.0], 0
    manager = Manager(
        replica_id=name,
        lighthouse_addr=address,
        secret_path=secret,
        use_async_quorum=False,
    )
    with manager, DiLoCo(manager, [model], inner, outer, SYNC_EVERY, should_quantize=True):
        print(f"{name} begins at meeting {manager.current_step()}", flush=True)
        while not is_done(manager):
            if dies and num_steps == KILLED_IN_STEP:
                print(f"{name} is killed in step {num_steps}", flush=True)
                os.kill(os.getpid(), signal.SIGKILL)
            inputs = torch.randn(16, 8)
            loss = (model(inputs) - inputs.sum(dim=1, keepdim=True)).square().mean()
            inner.zero_grad()
            loss.backward()
            inner.step()  # every tenth one is a meeting
            losses.append(loss.item())
            num_steps += 1
        # Just met: with fragment_update_alpha=0 the weights are those of all.
        weights = torch.cat([each.detach().flatten() for each in model.parameters()])
        meetings = manager.current_step()
        num_alone = 2 * meetings - manager.batches_committed()
        tell.send((weights.tolist(), losses[-1], meetings, num_alone))


def is_done(manager: Manager) -> bool:
    """Tell whether to end: after so many meetings, or as many again, if both are there."""
    meetings = manager.current_step()
    return meetings > 0 and meetings % MEETINGS == 0 and manager.num_participants() == 2


def start(name: str, lighthouse: LighthouseServer, *, dies: bool = False) -> tuple[Any, Connection]:
    """Fork a replica: torch is imported already."""
    fork = multiprocessing.get_context("fork")
    told, tell = fork.Pipe(duplex=False)
    replica = fork.Process(
        target=train,
        args=(name, lighthouse.address(), str(lighthouse.secret_path)),
        kwargs={"dies": dies, "tell": tell},
    )
    replica.start()
    tell.close()
    return replica, told


def main() -> None:
    """Train two replicas through the death of one."""
    with LighthouseServer(expected_replicas=2) as lighthouse:
        a, of_a = start("a", lighthouse)
        b, _ = start("b", lighthouse, dies=True)
        b.join()
        b, of_b = start("b", lighthouse)
        (weights, loss, meetings, num_alone), (others, *_) = of_a.recv(), of_b.recv()
        a.join()
        b.join()
    print(f"{meetings} meetings in {meetings * SYNC_EVERY} steps; last loss {loss:.4f}")
    print(f"a held {num_alone} of them alone, while b was away")
    print("THE SAME WEIGHTS" if weights == others else "THE WEIGHTS DIFFER")
    sys.exit(weights != others)


if __name__ == "__main__":
    main()
