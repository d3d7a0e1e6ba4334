"""One replica: Manager, DistributedDataParallel and Optimizer over Gloo, as in their README.

Usage: replica.py NUMBER LIGHTHOUSE LOG HANG_FILE WIDTH COMPUTE_S NUM_STEPS MIN_REPLICAS TUNING
Writes a line for each committed step to LOG; while HANG_FILE is there its training hangs.
"""

from __future__ import annotations

import json
import os
import sys
import time
from datetime import timedelta
from pathlib import Path

os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")

import torch
import torch.distributed as dist
from said import end_with_input, leave, say
from torch import nn
from torchft import DistributedDataParallel, Manager, Optimizer, ProcessGroupGloo

ROWS = 8
TUNED_S, DEFAULT_S = 1.0, 5.0
"""Limits of the process group: their examples set 5 s."""


def network(width: int) -> nn.Sequential:
    """Return three layers, the same everywhere."""
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for _ in range(3):
        layers += [nn.Linear(width, width), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


class Training:
    """A model and an optimiser that are healed together."""

    def __init__(self, number: int, lighthouse: str, *, width: int, least: int, tuned: bool):
        limit = timedelta(seconds=TUNED_S if tuned else DEFAULT_S)
        store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        net = network(width)
        self.manager = Manager(
            pg=ProcessGroupGloo(timeout=limit),
            load_state_dict=self.load,
            state_dict=self.save,
            min_replica_size=least,
            timeout=timedelta(seconds=30),
            rank=0,
            world_size=1,
            store_addr="127.0.0.1",
            store_port=store.port,
            lighthouse_addr=lighthouse,
            replica_id=f"replica_{number}",
            hostname="127.0.0.1",
        )
        self.store = store
        self.model = DistributedDataParallel(self.manager, net)
        self.optimizer = Optimizer(self.manager, torch.optim.AdamW(net.parameters()))

    def load(self, state: dict[str, object]) -> None:
        """Take over a peer's state."""
        self.model.load_state_dict(state["model"])
        self.optimizer.optim.load_state_dict(state["optim"])

    def save(self) -> dict[str, object]:
        """Return what a peer needs."""
        return {"model": self.model.state_dict(), "optim": self.optimizer.optim.state_dict()}


def main() -> None:
    """Train."""
    number, lighthouse, log, hang, width, compute_s, num_steps, least, tuning = sys.argv[1:]
    end_with_input()
    torch.set_num_threads(1)
    fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    training = Training(
        int(number), lighthouse, width=int(width), least=int(least), tuned=tuning == "tuned"
    )
    manager = training.manager
    inputs, targets = torch.randn(ROWS, int(width)), torch.randn(ROWS, int(width))
    while manager.current_step() < int(num_steps):
        training.optimizer.zero_grad()
        if float(compute_s):
            time.sleep(float(compute_s))
        while Path(hang).exists():
            time.sleep(1.0)
        (training.model(inputs) - targets).square().mean().backward()
        before = manager.current_step()
        training.optimizer.step()
        if manager.current_step() > before:
            line = {
                "t": time.monotonic(),
                "step": manager.current_step(),
                "members": manager.num_participants(),
            }
            os.write(fd, json.dumps(line).encode() + b"\n")
    say(done=num_steps)
    time.sleep(0.5)  # the last vote of the others is served by this process
    leave()


if __name__ == "__main__":
    main()
