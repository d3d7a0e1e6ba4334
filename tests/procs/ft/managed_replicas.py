"""Replicas under ``Manager`` as threads of the test, beside a quorum service in its own process."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from danaus.ft import Manager
from danaus.testing.groups import together

SOURCE = Path(__file__).parents[3] / "src"
START_LIMIT_S = 50.0


class Service:
    """A quorum service of a folder that listens; ``end`` it before the next one of that folder.

    How long it takes to start is the machine's business, not that of what replicas are given.
    """

    def __init__(self, folder: Path, *options: str) -> None:
        ready, theirs = os.pipe()
        words = (f"--run={folder}", f"--ready-fd={theirs}", *options)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "danaus.quorum.service", *words],
            stdin=subprocess.PIPE,
            pass_fds=(theirs,),
            env={**os.environ, "PYTHONPATH": str(SOURCE)},
        )
        os.close(theirs)
        with open(ready) as said:
            if not (select.select([said], [], [], START_LIMIT_S)[0] and said.readline()):
                self.kill()
                raise AssertionError("the quorum service did not come to listen")

    def end(self) -> None:
        self.process.communicate(timeout=30.0)

    def kill(self) -> None:
        self.process.kill()
        self.end()


class Replica:
    """A line, ``y = w x``, and its manager: small enough to compute by hand."""

    def __init__(self, folder: Path, name: str, weight: float = 1.0, **options: Any) -> None:
        self.name = name
        self.weight = nn.Parameter(torch.tensor([weight]))
        self.optimizer = torch.optim.SGD([self.weight], lr=1.0, momentum=0.5)
        self.num_loads = 0
        self.manager = Manager(
            load_state_dict=self.load,
            state_dict=self.state,
            replica_id=name,
            folder=folder,
            **options,
        )

    def state(self) -> dict[str, Any]:
        return {"weight": self.weight.data, "optimizer": self.optimizer.state_dict()}

    def load(self, state: dict[str, Any]) -> None:
        self.num_loads += 1
        self.weight.data.copy_(state["weight"])
        self.optimizer.load_state_dict(state["optimizer"])

    def step(self, gradient: float, before_vote: Callable[[], object] = lambda: None) -> bool:
        """Take one step with this gradient; tell whether it was committed."""
        self.manager.start_quorum()
        self.weight.grad = torch.tensor([gradient])
        self.manager.allreduce(self.weight.grad).wait()
        before_vote()
        committed = self.manager.should_commit()
        if committed:
            self.optimizer.step()
        return committed

    @property
    def grad(self) -> float:
        assert self.weight.grad is not None
        return self.weight.grad.item()


def all_step(*replicas: Replica, gradients: dict[str, float] | None = None) -> list[bool]:
    """Let replicas take one step side by side."""
    given = gradients or {}
    return together(*[lambda r=r: r.step(given.get(r.name, 1.0)) for r in replicas])


def in_step(replicas: list[Replica], act: Callable[[Replica], Any]) -> list[Any]:
    """Let each do something in a step of its own thread; return what came of it, or the tensor."""

    def run(replica: Replica) -> Any:
        replica.manager.start_quorum()
        value = act(replica)
        assert replica.manager.should_commit()
        return value

    return together(*[lambda r=r: run(r) for r in replicas])


def bits(*tensors: Tensor) -> list[bytes]:
    return [tensor.detach().numpy().tobytes() for tensor in tensors]
