"""Replicas under ``DiLoCo`` as processes: what test_apart_deaths.py runs.

``forking.py`` forks them, for lines ``REPLICA MODE``.  A replica ends once ``LAST`` outer steps are
committed.  In the outer step ``FATAL`` it dies if its mode says so.  In an endless mode it waits
after that step until the gate has been closed, and ends ``MORE`` steps after the first that three
have taken together again.
"""

from __future__ import annotations

import hashlib
import os
import signal
import sys
from typing import Any

import torch
from torch import Tensor, nn

from danaus.ft import DiLoCo, Manager
from danaus.ft.managed_crew import ManagedCrew
from danaus.ft.step_events import Ballot
from danaus.quorum.messages import MemberId

FATAL, LAST, MORE = 5, 8, 4
SYNC_EVERY, DELAY, ALPHA = 8, 2, 0.25
SHAPES = ((3, 5), (300,), (7, 11), (2,))


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class Dying(ManagedCrew):
    """Dies as it votes on the fatal step."""

    mode = ""

    def vote(self, ballot: Ballot) -> dict[MemberId, Ballot]:
        fatal = ballot.step == FATAL
        if fatal and self.mode == "before_vote":
            die()
        votes = super().vote(ballot)
        if fatal and self.mode == "after_vote":
            die()
        return votes


def build() -> tuple[nn.ParameterList, list[nn.ParameterList], torch.optim.Optimizer]:
    """Return a model, its two fragments and an optimiser for it."""
    draw = torch.Generator().manual_seed(3)
    model = nn.ParameterList(nn.Parameter(torch.randn(each, generator=draw)) for each in SHAPES)
    fragments = [nn.ParameterList(list(model)[at : at + 2]) for at in (0, 2)]
    return model, fragments, torch.optim.AdamW(model.parameters(), lr=0.05)


def outer_of(fragment: nn.ParameterList) -> torch.optim.Optimizer:
    return torch.optim.SGD(fragment.parameters(), lr=0.7, momentum=0.9, nesterov=True)


def inner_step(
    model: nn.ParameterList, optimizer: torch.optim.Optimizer, name: str, step: int
) -> None:
    draw = torch.Generator().manual_seed(1000 * step + ord(name))
    optimizer.zero_grad()
    for each in model:
        (each - torch.randn(each.shape, generator=draw)).square().sum().backward()
    optimizer.step()


def bits(tensors: list[Tensor]) -> str:
    hashed = hashlib.sha256()
    for each in tensors:
        hashed.update(each.detach().numpy().tobytes())
    return hashed.hexdigest()


class Replica:
    def __init__(self, folder: str, name: str, mode: str) -> None:
        self.name, self.mode = name, mode
        self.is_endless = mode.startswith("endless")
        self.model, fragments, self.inner = build()
        self.manager = Manager(replica_id=name, folder=folder, use_async_quorum=False)
        self.shared: Any = None
        register = self.manager.register_state_dict_fn

        def listen(key: str, load: Any, get: Any, **how: Any) -> None:
            def loaded(state: Any) -> None:
                load(state)
                self.say(f"loaded {key} {self.manager.current_step()}")

            self.shared = get if key == "outer" else self.shared
            register(key, loaded, get, **how)

        self.manager.register_state_dict_fn = listen  # type: ignore[method-assign]
        self.vote, self.manager.should_commit = self.manager.should_commit, self.settle  # type: ignore[method-assign]
        self.diloco = DiLoCo(
            self.manager,
            fragments,
            self.inner,
            [outer_of(each) for each in fragments],
            sync_every=SYNC_EVERY,
            fragment_sync_delay=DELAY,
            fragment_update_alpha=ALPHA,
            should_quantize=mode.endswith("int8"),
        )
        self.num_inner, self.last = 0, LAST

    def say(self, text: str) -> None:
        os.write(1, f"{self.name} {text}\n".encode())

    def settle(self, timeout: float | None = None) -> bool:
        """Vote, and tell of it."""
        step, num = self.manager.current_step() + 1, self.manager.num_participants()
        committed = self.vote(timeout)
        self.say(f"{'committed' if committed else 'discarded'} {step} by {num}")
        if committed and step > FATAL and num == 3 and self.is_endless:
            self.is_endless, self.last = False, step + MORE
        return committed

    def train(self, gate: int) -> None:
        with self.diloco:
            while self.is_endless or self.manager.current_step() < self.last:
                step = self.num_inner
                if self.mode == "in_delay" and step == FATAL * SYNC_EVERY // 2 - 1:
                    die()  # prepared, and not voted on
                if self.is_endless and self.manager.current_step() == FATAL:
                    os.read(gate, 1)
                inner_step(self.model, self.inner, self.name, step)
                self.num_inner += 1
        self.say(f"inner {self.num_inner}")
        self.say(f"weights {bits(list(self.model))}")
        shared = self.shared()["fragments"]
        self.say(f"backups {bits([each for part in shared for each in part['backup']])}")


def train_one(folder: str, gate: int, name: str, mode: str) -> None:
    Dying.mode = mode
    sys.modules["danaus.ft.managing"].ManagedCrew = Dying  # type: ignore[attr-defined]
    replica = Replica(folder, name, mode)
    replica.say(f"pid {os.getpid()}")
    replica.train(gate)
    replica.manager.shutdown()
