"""DiLoCo, and streaming DiLoCo, over the commit of the whole quorum.

Owns the pseudo-gradient of a fragment, the outer optimiser's step with the mean of all, and the
mixing of what comes out with what was trained meanwhile.

Source: DiLoCo (arXiv 2311.08105), Streaming DiLoCo (arXiv 2501.18512).  What differs: an outer step
is taken by all replicas or by none, and a replica that joins in the middle of a period brings
nothing to its mean.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from danaus.collectives.quantising import Kind
from danaus.collectives.tensor_bytes import local_shard
from danaus.core.errors import ConfigError
from danaus.ft.averaging import OuterManager, wide, wiring_of
from danaus.ft.fragments import Schedule
from danaus.ft.outer_steps import OuterSteps
from danaus.ft.sharding import is_sharded


@dataclass(eq=False)
class DiLoCo:
    """Train apart; every ``sync_every`` inner steps, bring the replicas together, part by part.

    While it is entered, each step of ``inner_optimizer`` counts.  Each fragment in turn is compared
    with its *backup*, the weights on which all replicas last agreed; the mean of the differences is
    the gradient with which its outer optimiser steps, from the backup on.  If the outer step cannot
    commit (a replica died, say), parameters, optimisers and backups stay as they are, and those
    that are left try again at once with what they have; no inner step is lost.

    A replica that joins learns parameters and optimisers, backups and the place in the schedule,
    when the ``with`` statement is entered.  Of the manager's state only what was agreed on is
    compared from here on: what the manager was given itself may differ between replicas.

    Args:
        manager: Its steps are the outer steps.
        model_fragments: Modules of one model that share no parameter; they meet in turn.
        inner_optimizer: Steps in your loop.
        outer_optimizer: Steps here: one for all fragments, or a list with one for each.
        sync_every: Inner steps in which each fragment meets once.
        backup_device: Where backups are; the CPU unless given.
        pin_memory: Whether backups on the CPU of a machine with an accelerator are pinned.
        use_bucketization: Whether tensors are reduced in buffers together, or each by itself.
        bucket_cap_mb: Size of such a buffer in MiB; 1024 unless given.
        should_quantize: Whether differences travel in a byte each: ``True`` and ``"int8"`` with
            even steps, ``"fp8"`` with relative ones.  All replicas have the same mean.
        fragment_sync_delay: Inner steps that are taken while a fragment's mean is on its way.
        fragment_update_alpha: 0: go on from the outer step's weights; 1: from one's own.

    Raises:
        ConfigError: They do not fit together.

    Example::

        with DiLoCo(manager, [model], inner, outer, sync_every=100):
            for batch in batches:
                inner.zero_grad()
                loss_of(model, batch).backward()
                inner.step()
    """

    manager: OuterManager
    model_fragments: Sequence[nn.Module]
    inner_optimizer: Optimizer
    outer_optimizer: Optimizer | Sequence[Optimizer]
    sync_every: int
    backup_device: torch.device | str | None = None
    pin_memory: bool = True
    use_bucketization: bool = False
    bucket_cap_mb: float | None = None
    should_quantize: bool | Kind = False
    fragment_sync_delay: int = 0
    fragment_update_alpha: float = 0.0
    _steps: OuterSteps = field(init=False, repr=False)

    def __post_init__(self) -> None:
        alpha = self.fragment_update_alpha
        if not 0.0 <= alpha <= 1.0:
            raise ConfigError(f"fragment_update_alpha is {alpha}", "0.0 to 1.0")
        modules = list(self.model_fragments)
        schedule = Schedule(self.sync_every, len(modules), self.fragment_sync_delay)
        _check_apart(modules)
        outers = self._outers(len(modules))
        place = _Place(torch.device(self.backup_device or "cpu"), self.pin_memory)
        fragments = [
            DiLoCoFragment(
                modules[n], outer, alpha=alpha, place=place, keeps=outer not in outers[:n]
            )
            for n, outer in enumerate(outers)
        ]
        self._steps = OuterSteps(
            self.manager,
            fragments,
            self.inner_optimizer,
            schedule=schedule,
            wiring=wiring_of(self.should_quantize, self.use_bucketization, self.bucket_cap_mb),
        )

    def _outers(self, num: int) -> list[Optimizer]:
        given = self.outer_optimizer
        if isinstance(given, Optimizer):
            return [given] * num
        if len(given) != num:
            raise ConfigError(
                f"{len(given)} outer optimisers for {num} fragments", "one, or one for each"
            )
        return list(given)

    def __enter__(self) -> Self:
        self._steps.enter()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._steps.leave()


@dataclass(frozen=True, slots=True)
class _Place:
    """Where backups are."""

    device: torch.device
    pinned: bool

    def copy_of(self, tensor: Tensor) -> Tensor:
        """Return a copy of this rank's part."""
        copy = local_shard(tensor).to(self.device, copy=True)
        on_cpu = self.device.type == "cpu" and torch.accelerator.is_available()
        return copy.pin_memory() if self.pinned and on_cpu else copy


class DiLoCoFragment:
    """One fragment: its backup, its pseudo-gradient and its outer step.

    Args:
        module: Its parameters that are trained are the fragment's.
        outer: Steps with the mean.
        alpha: How much of one's own weights stays.
        place: Where the backup is.
        keeps: Whether the outer optimiser's state is this fragment's to show; one keeps it for all.

    Raises:
        ConfigError: Nothing to train, or the outer optimiser does not have all of it.
    """

    def __init__(
        self, module: nn.Module, outer: Optimizer, *, alpha: float, place: _Place, keeps: bool
    ) -> None:
        self.module, self._outer, self._alpha, self._keeps = module, outer, alpha, keeps
        self._parameters = [each for each in module.parameters() if each.requires_grad]
        held = {id(each) for group in outer.param_groups for each in group["params"]}
        if not self._parameters:
            raise ConfigError("a fragment without a parameter to train", "one that is trained")
        if not all(id(each) in held for each in self._parameters):
            raise ConfigError(
                "an outer optimiser without all parameters of its fragment", "each of them"
            )
        self._backup = [place.copy_of(each) for each in self._parameters]
        self.brought = [each.to(wide(each.dtype)) for each in self._backup]

    @torch.no_grad()
    def prepare(self) -> None:
        """Take down the pseudo-gradient: how far this replica has gone from the backup."""
        for at, (parameter, backup) in enumerate(zip(self._parameters, self._backup, strict=True)):
            here = local_shard(parameter)
            kind = wide(here.dtype)
            self.brought[at] = backup.to(here.device, kind) - here.to(kind)

    @torch.no_grad()
    def apply(self, mean: Sequence[Tensor]) -> None:
        """Step from the backup with the mean; mix what comes out with this replica's weights."""
        here = [local_shard(each) for each in self._parameters]
        own = [each.clone() for each in here] if self._alpha else []
        with _without_gradients(self._outer, self._parameters):
            for parameter, backup, each in zip(self._parameters, self._backup, mean, strict=True):
                shard = local_shard(parameter)
                shard.copy_(backup)
                parameter.grad = _placed_as(each.to(shard.device, shard.dtype), parameter)
            self._outer.step()
        for backup, each in zip(self._backup, here, strict=True):
            backup.copy_(each)
        for each, mine in zip(here, own, strict=False):
            each.lerp_(mine, self._alpha)

    def shared(self) -> dict[str, Any]:
        """Return the backup and the outer optimiser's state."""
        kept = self._outer.state_dict() if self._keeps else None
        return {"backup": self._backup, "optimizer": kept}

    @torch.no_grad()
    def load_shared(self, state: dict[str, Any]) -> None:
        """Take over another replica's."""
        for backup, given in zip(self._backup, state["backup"], strict=True):
            backup.copy_(given)
        if self._keeps:
            self._outer.load_state_dict(state["optimizer"])


@contextlib.contextmanager
def _without_gradients(outer: Optimizer, fragment: Iterable[Tensor]) -> Iterator[None]:
    """Put the inner gradients aside: an outer step is with those that it is given, no others."""
    held = [each for group in outer.param_groups for each in group["params"]]
    aside = {id(each): (each, each.grad) for each in (*held, *fragment)}
    for each, _ in aside.values():
        each.grad = None
    try:
        yield
    finally:
        for each, gradient in aside.values():
            each.grad = gradient


def _placed_as(shard: Tensor, parameter: Tensor) -> Tensor:
    """Return a gradient for ``parameter``, of which ``shard`` is this rank's part."""
    if not is_sharded(parameter):
        return shard
    from torch.distributed.tensor import DTensor

    assert isinstance(parameter, DTensor)
    return DTensor.from_local(
        shard,
        parameter.device_mesh,
        parameter.placements,
        run_check=False,
        shape=parameter.shape,
        stride=parameter.stride(),
    )


def _check_apart(modules: Sequence[nn.Module]) -> None:
    """Raise ``ConfigError`` where two fragments share a parameter: it would meet twice."""
    seen: dict[int, int] = {}
    for number, module in enumerate(modules):
        for name, parameter in module.named_parameters():
            first = seen.setdefault(id(parameter), number)
            if first != number:
                raise ConfigError(
                    f"fragments {first} and {number} share a parameter, {name} of the latter",
                    "fragments that are apart",
                )
