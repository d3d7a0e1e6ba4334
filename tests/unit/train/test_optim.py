"""AdamW's arithmetic is torch's; the learning rate is a function of the step."""

from __future__ import annotations

import math

import pytest
import torch

from danaus.train.config import OptimConfig
from danaus.train.optim import AdamW, gradient_norm_square, learning_rate


def test_updates_are_those_of_torchs_adamw() -> None:
    torch.manual_seed(0)
    config = OptimConfig(weight_decay=0.1)
    ours = {"matrix": torch.randn(5, 3), "vector": torch.randn(7)}
    theirs = [torch.nn.Parameter(value.clone()) for value in ours.values()]
    reference = torch.optim.AdamW(
        [
            {"params": theirs[:1], "weight_decay": 0.1},
            {"params": theirs[1:], "weight_decay": 0.0},
        ],
        betas=(config.beta1, config.beta2),
        eps=config.eps,
        foreach=False,
    )
    optimizer = AdamW(ours, config)
    for step in range(1, 6):
        gradients = {name: torch.randn_like(value) for name, value in ours.items()}
        lr = 1e-2 / step
        optimizer.apply(gradients, step=step, lr=lr)
        for parameter, gradient in zip(theirs, gradients.values(), strict=True):
            parameter.grad = gradient.clone()
        for group in reference.param_groups:
            group["lr"] = lr
        reference.step()
    for value, parameter in zip(ours.values(), theirs, strict=True):
        torch.testing.assert_close(value, parameter.detach(), rtol=1e-6, atol=1e-7)


def test_empty_parts_are_fine() -> None:
    optimizer = AdamW({"none": torch.empty(0, 4)}, OptimConfig())
    optimizer.apply({"none": torch.empty(0, 4)}, step=1, lr=0.1)
    assert gradient_norm_square([torch.empty(0), torch.ones(3)]) == pytest.approx(3.0)


def test_the_rate_rises_then_falls_along_a_cosine() -> None:
    config = OptimConfig(lr=1.0, min_lr_ratio=0.1, warmup_steps=10)
    rates = [learning_rate(step, 110, config) for step in range(1, 111)]
    assert rates[:10] == pytest.approx([step / 10 for step in range(1, 11)])
    assert rates[59] == pytest.approx(0.55)
    assert rates[-1] == pytest.approx(0.1)
    assert all(a > b for a, b in zip(rates[9:], rates[10:], strict=False))


@pytest.mark.parametrize("warmup", [0, 5, 50])
def test_the_rate_is_sane_whatever_the_lengths(warmup: int) -> None:
    config = OptimConfig(lr=1.0, warmup_steps=warmup)
    for step in (1, 5, 6, 20, 100):
        rate = learning_rate(step, 5, config)
        assert 0.0 < rate <= 1.0
        assert math.isfinite(rate)


def test_the_norm_is_taken_in_double_precision() -> None:
    huge = torch.full((4,), 1e30)
    assert gradient_norm_square([huge]) == pytest.approx(4e60)
