"""What a user's type checker is told of training apart.  mypy reads this (``make check``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_type

import torch
from torch import nn
from torch.optim import Optimizer

from danaus.ft import DiLoCo, LocalSGD, Manager


def apart(model: nn.Module, inner: Optimizer, outer: Optimizer) -> None:
    manager = Manager(replica_id="a", folder="run")
    with LocalSGD(manager, model, inner, sync_every=8) as local:
        assert_type(local, LocalSGD)
        assert_type(local.sync_every, int)
    LocalSGD(manager, model, inner, 8)
    LocalSGD(manager, model, inner)  # type: ignore[call-arg]


def in_fragments(manager: Manager, layers: Sequence[nn.Module], inner: Optimizer) -> None:
    outers = [torch.optim.SGD(layer.parameters(), lr=0.7) for layer in layers]
    with DiLoCo(
        manager,
        layers,
        inner,
        outers,
        sync_every=100,
        fragment_sync_delay=5,
        fragment_update_alpha=0.5,
        should_quantize="fp8",
        backup_device=torch.device("cpu"),
        pin_memory=False,
        use_bucketization=True,
        bucket_cap_mb=32,
    ) as diloco:
        assert_type(diloco, DiLoCo)
    DiLoCo(manager, layers, inner, outers[0], 100)
    DiLoCo(manager, layers, inner, outers[0], 100, should_quantize="int4")  # type: ignore[arg-type]
