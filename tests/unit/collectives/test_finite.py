"""What is not finite is found, wherever it hides; what only sums up too high is not."""

from __future__ import annotations

import pytest
import torch

from danaus.collectives.finite import is_finite


@pytest.mark.parametrize("odd", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("at", [0, 500, 999])
def test_one_odd_element_is_found(odd: float, at: int) -> None:
    flat = torch.zeros(1000)
    flat[at] = odd
    assert not is_finite(flat)


def test_infinities_do_not_make_up_for_each_other() -> None:
    flat = torch.zeros(1000)
    flat[3], flat[700] = float("inf"), float("-inf")
    assert not is_finite(flat)


def test_a_sum_that_is_too_large_speaks_against_nobody() -> None:
    assert is_finite(torch.full((1000,), 3e38))
    assert is_finite(torch.zeros(0))
