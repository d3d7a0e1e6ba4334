"""The numbers that an optimiser's step goes by, read and written."""

from __future__ import annotations

import pytest
import torch

from danaus.core.errors import InternalError
from danaus.ft.optimizer_numbers import OptimizerNumbers


def parameters() -> list[torch.nn.Parameter]:
    return [torch.nn.Parameter(torch.ones(2)), torch.nn.Parameter(torch.ones(3))]


def test_what_is_written_is_what_was_read_in_kind_as_well() -> None:
    a, b = parameters()
    groups = [{"params": [a], "lr": 0.5}, {"params": [b], "betas": (0.5, 0.75)}]
    optimizer = torch.optim.AdamW(groups, lr=torch.tensor(0.25))
    numbers = OptimizerNumbers(optimizer)
    before, kinds = numbers.get(), [{k: type(v) for k, v in g.items()} for g in groups]
    first, second = optimizer.param_groups
    first["lr"], first["maximize"] = 0.125, True
    second["lr"].fill_(2.0)
    second["betas"] = (0.0, 0.5)
    changed = numbers.get()
    assert changed != before
    numbers.set(before)
    assert numbers.get() == before
    assert (first["lr"], first["maximize"], first["amsgrad"]) == (0.5, False, False)
    assert (second["lr"].item(), second["betas"]) == (0.25, (0.5, 0.75))
    assert [{k: type(v) for k, v in g.items()} for g in groups] == kinds
    assert first["foreach"] is None


def test_what_a_schedule_keeps_for_itself_does_not_count() -> None:
    optimizer = torch.optim.SGD(parameters(), lr=0.5)
    numbers = OptimizerNumbers(optimizer)
    before = numbers.get()
    torch.optim.lr_scheduler.StepLR(optimizer, 1)
    assert "initial_lr" in optimizer.param_groups[0]
    assert numbers.get() == before


def test_numbers_of_another_program_are_refused() -> None:
    numbers = OptimizerNumbers(torch.optim.SGD(parameters(), lr=0.5))
    with pytest.raises(InternalError, match="numbers for"):
        numbers.set(numbers.get()[1:])
