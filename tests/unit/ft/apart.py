"""Replicas that train apart: small models whose histories can be computed by hand."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from danaus.ft import DiLoCo
from danaus.testing.groups import member_names, together
from danaus.testing.memory_group import MemoryHub
from danaus.testing.memory_manager import MemoryManager

CASES = json.loads((Path(__file__).parent / "cases" / "diloco.json").read_text())["cases"]
CASE_IDS = [
    f"delay{case['fragment_sync_delay']}-alpha{case['fragment_update_alpha']}" for case in CASES
]


class Scalar(nn.Module):
    """One number."""

    def __init__(self, start: float = 1.0) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.tensor(start))


def managers(num: int, spares: Sequence[str] = ()) -> list[MemoryManager]:
    hub = MemoryHub(member_names(num))
    return [MemoryManager(hub.group(name), spares) for name in hub.names]


def run_case(manager: Any, case: dict[str, Any], **options: Any) -> None:
    """Train as the case says, and compare each number of it."""
    parts = [Scalar(), Scalar()]
    inner = torch.optim.SGD([each.w for each in parts], lr=1.0)
    outer = torch.optim.SGD([each.w for each in parts], lr=2.0)
    shared = state_of(manager, "outer")
    diloco = DiLoCo(
        manager,
        parts,
        inner,
        outer,
        sync_every=6,
        fragment_sync_delay=case["fragment_sync_delay"],
        fragment_update_alpha=case["fragment_update_alpha"],
        **options,
    )
    with diloco:
        for step in range(len(case["local"][0])):
            if step:
                inner.zero_grad()
                sum(2 * each.w for each in parts).backward()
                inner.step()
            assert [each.w.item() for each in parts] == [local[step] for local in case["local"]]
            if str(step) in case["global_after_inner_step"]:
                backups = [each["backup"][0].item() for each in shared()["fragments"]]
                assert backups == case["global_after_inner_step"][str(step)], step


def state_of(manager: Any, key: str) -> Callable[[], Any]:
    """Return a function that gives what is registered under a key from now on."""
    found: dict[str, Callable[[], Any]] = {}
    register = manager.register_state_dict_fn

    def listen(
        name: str, load: Callable[[Any], object], get: Callable[[], Any], **options: bool
    ) -> None:
        found[name] = get
        register(name, load, get, **options)

    manager.register_state_dict_fn = listen

    def get_now() -> Any:
        return found[key]()

    return get_now


class Net(nn.Module):
    """Parameters of many sizes; what it computes depends on all of them."""

    SHAPES = ((1,), (3, 5), (300,), (), (7, 11), (2,))

    def __init__(self, seed: int = 0, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        draw = torch.Generator().manual_seed(seed)
        self.parts = nn.ParameterList(
            nn.Parameter(torch.randn(shape, generator=draw).to(dtype)) for shape in self.SHAPES
        )

    def loss(self, replica: int, step: int) -> Tensor:
        draw = torch.Generator().manual_seed(1000 * replica + step)
        losses = [
            (each - torch.randn(each.shape, generator=draw).to(each.dtype)).square().sum()
            for each in self.parts
        ]
        return torch.stack(losses).sum()


def train(net: Net, inner: torch.optim.Optimizer, steps: range, replica: int = 0) -> None:
    for step in steps:
        inner.zero_grad()
        net.loss(replica, step).backward()
        inner.step()


def each_apart(num: int, run: Callable[[MemoryManager, int], Any], **options: Any) -> list[Any]:
    """Run a replica in each of some threads, over managers in memory."""
    made = managers(num, **options)
    return together(*[lambda m=m, n=n: run(m, n) for n, m in enumerate(made)])


def hand_over(donor: MemoryManager, learner: MemoryManager) -> None:
    """Give one replica's state to another, as a transfer does: its bytes."""
    for key, (_, get) in donor.state_fns.items():
        learner.state_fns[key][0](copy.deepcopy(get()))


def weights(net: nn.Module) -> Tensor:
    return torch.cat([each.detach().double().flatten() for each in net.parameters()])
