"""What a user's type checker is told of loops.  mypy reads this (``make check``)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import assert_type

import torch
from torch import Tensor, nn

from danaus.ft import (
    Attempt,
    Committed,
    Ledger,
    Loop,
    Observer,
    Opened,
    Participant,
    Place,
    Step,
    StepPlan,
    StepResult,
    Work,
)
from danaus.model import Llama, LlamaConfig
from danaus.train import ReplicaWork, TrainConfig, Trainer, preset, run_plain


class Says(Observer):
    def committed(self, line: Committed, result: StepResult) -> None:
        assert_type(line.leaves, dict[str, tuple[int, int]])
        assert_type(result.loss, float)


def managed(model: nn.Module, optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
    place = Place.in_folder(Path("run"), "a", incarnation=1)
    assert_type(place, Place)
    plan = StepPlan(num_steps=10, num_leaves=4)
    ledger = Ledger(Path("run/ledger/a-0.jsonl"), Opened(at=0.0, member=place.member))
    with Loop(model, optimizer, place, plan=plan, ledger=ledger, observer=Says()) as loop:
        assert_type(loop, Loop)
        for step in loop.steps():
            assert_type(step, Step)
            assert_type(step.number, int)
            assert_type(step.microbatches(), Iterator[int])
            step.backward(loss, 3)
            step.refuse("why")
            step.backward(loss)  # type: ignore[call-arg]
        assert_type(loop.current_step(), int)
        assert_type(loop.num_participants(), int)
        assert_type(loop.last_loss(), float)
    Loop(model, optimizer, place, plan)  # type: ignore[call-arg]


def by_hand(place: Place, work: ReplicaWork, plan: StepPlan) -> None:
    taken: Work = work
    with Participant(place, taken, plan) as participant:
        for attempt in participant.attempts():
            assert_type(attempt, Attempt)
            for leaf in attempt.leaves():
                assert_type(leaf.microbatches, range)
                attempt.add(leaf, work.compute_leaf(attempt.step, leaf.microbatches))
        assert_type(participant.replica_ids, tuple[str, ...])


def plain() -> None:
    assert_type(run_plain(Trainer(TrainConfig()), 3), str)
    assert_type(Llama(LlamaConfig()), Llama)
    preset("debug")
