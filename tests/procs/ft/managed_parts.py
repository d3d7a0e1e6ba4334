"""Replicas under ``Manager`` as processes: what test_managed_deaths.py runs.

``forking.py`` forks them, for lines ``REPLICA MODE``.  After ``HOLD`` committed steps a replica
waits until the gate has been closed; in the step after them it dies if its mode says so.
"""

from __future__ import annotations

import hashlib
import os
import signal
import sys
from typing import Any

import torch
from torch import nn

from danaus.ft import Manager
from danaus.ft.managed_crew import ManagedCrew
from danaus.ft.step_events import Ballot
from danaus.quorum.messages import MemberId

HOLD, STEPS = 4, 40
LARGE = 8_000_000


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class Dying(ManagedCrew):
    """Dies as it votes on the fatal step."""

    mode = ""

    def vote(self, ballot: Ballot) -> dict[MemberId, Ballot]:
        fatal = ballot.step == HOLD + 1
        if fatal and self.mode == "before_vote":
            die()
        votes = super().vote(ballot)
        if fatal and self.mode == "after_vote":
            die()
        return votes


class Replica:
    def __init__(self, folder: str, name: str) -> None:
        self.name = name
        torch.manual_seed(3)
        self.model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01)
        self.manager = Manager(
            load_state_dict=self.load,
            state_dict=lambda: {"m": self.model.state_dict(), "o": self.optimizer.state_dict()},
            replica_id=name,
            folder=folder,
        )

    def load(self, state: dict[str, Any]) -> None:
        self.model.load_state_dict(state["m"])
        self.optimizer.load_state_dict(state["o"])
        self.say(f"loaded {self.manager.current_step()}")

    def say(self, text: str) -> None:
        os.write(1, f"{self.name} {text}\n".encode())

    def train(self, gate: int, mode: str) -> None:
        while self.manager.current_step() < STEPS:
            if self.manager.current_step() == HOLD:
                os.read(gate, 1)
            self.manager.start_quorum()
            step = self.manager.current_step() + 1  # one that learns has gone on meanwhile
            draw = torch.Generator().manual_seed(1000 * step + ord(self.name))
            self.model(torch.randn(6, 4, generator=draw)).square().sum().backward()
            self.manager.allreduce_gradients(self.model)
            if step == HOLD + 1:
                large = self.manager.allreduce(torch.ones(LARGE))
                if mode == "in_allreduce":
                    die()
                large.wait()
            committed = self.manager.should_commit()
            if committed:
                self.optimizer.step()
            self.optimizer.zero_grad()
            did = "committed" if committed else "discarded"
            self.say(f"{did} {step} by {self.manager.num_participants()}")
        hashed = hashlib.sha256()
        for parameter in self.model.parameters():
            hashed.update(parameter.detach().numpy().tobytes())
        self.say(f"bits {hashed.hexdigest()}")


def train_one(folder: str, gate: int, name: str, mode: str) -> None:
    Dying.mode = mode
    sys.modules["danaus.ft.managing"].ManagedCrew = Dying  # type: ignore[attr-defined]
    replica = Replica(folder, name)
    replica.say(f"pid {os.getpid()}")
    replica.train(gate, mode)
    replica.manager.shutdown()
