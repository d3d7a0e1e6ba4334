"""Replicas that train apart and meet now and then: the shell of ``ft.fragments``.

Owns what ``LocalSGD`` and ``DiLoCo`` share: the hooks of the inner optimiser, the instructions of
the schedule carried out with a ``Manager``, and the state that a joining replica learns.  What a
fragment brings to a mean and does with it is the fragment's.

The manager's step is the outer step, and begins with its period: whoever joins learns its state
then, before its first forward, and has a whole period to bring.

Invariants:
    T-1, T-2: parameters and backups change only after a vote that said yes; nothing else changes
    them but the inner optimiser and what was learned.
    Q-9: what is the same at all replicas between outer steps is compared; the rest of the state is
    each replica's own, and is learned from one donor as a whole.
"""

from __future__ import annotations

import time
import zlib
from collections import deque
from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from danaus.core.errors import ConfigError
from danaus.ft import fragments as on
from danaus.ft.averaging import OuterManager, Reduction, Wiring
from danaus.ft.fragments import FragmentMachine, Instructions, Schedule

SHARED_KEY, LOCAL_KEY = "outer", "local"
_USERS_OWN = "user/default/*"
"""What the manager was given itself: model and optimiser most likely, which train apart."""


class Fragment(Protocol):
    """A part of a model that meets as a whole."""

    module: nn.Module
    brought: list[Tensor]
    """What was prepared last; of the right shapes before that."""

    def prepare(self) -> None:
        """Take down what this replica brings; nothing else changes it."""
        ...

    def apply(self, mean: Sequence[Tensor]) -> None:
        """Take the outer step."""
        ...

    def shared(self) -> Any:
        """Return the live state that is the same at all replicas between outer steps."""
        ...

    def load_shared(self, state: Any) -> None:
        """Take over such a state."""
        ...


class OuterSteps:
    """Carry out a schedule while it is entered.

    Args:
        manager: Its steps are the outer ones; nobody else begins or ends them.
        fragments: In the order in which they meet.
        inner: Its steps are the inner ones.
        schedule: Which fragment meets when.
        wiring: How means travel.
    """

    def __init__(
        self,
        manager: OuterManager,
        fragments: Sequence[Fragment],
        inner: torch.optim.Optimizer,
        *,
        schedule: Schedule,
        wiring: Wiring,
    ) -> None:
        self._manager, self._fragments, self._inner = manager, fragments, inner
        self._machine, self._wiring = FragmentMachine(schedule), wiring
        self._reduction: Reduction | None = None
        self._hook: RemovableHandle | None = None
        manager.register_state_dict_fn(SHARED_KEY, self._load_shared, self._shared)
        manager.register_state_dict_fn(LOCAL_KEY, self._load_local, self._local, compared=False)
        manager.do_not_compare(_USERS_OWN)

    def enter(self) -> None:
        """Wait for the first quorum; from here on each step of the inner optimiser counts.

        Raises:
            ConfigError: It is entered already.
        """
        if self._hook is not None:
            raise ConfigError("training apart was entered twice", "one with statement at a time")
        self._carry_out(on.Entered())
        self._hook = self._inner.register_step_post_hook(self._stepped)

    def leave(self) -> None:
        """Count no more steps."""
        if self._hook is not None:
            self._hook.remove()
            self._hook = None

    # -- what the machine orders --------------------------------------------------------------

    def _stepped(self, _optimizer: object, _args: object, _options: object) -> None:
        self._carry_out(on.Stepped())

    def _carry_out(self, event: on.Event) -> None:
        todo = deque(self._machine.handle(event))
        while todo:
            todo.extend(self._do(todo.popleft()))

    def _do(self, order: on.Instruction) -> Instructions:
        """Carry out one instruction; return those that follow from it."""
        if isinstance(order, on.Begin):
            time.sleep(order.pause_s)
            self._manager.start_quorum()
            self._manager.wait_quorum()
            return self._machine.handle(on.Begun())
        fragment = self._fragments[order.fragment]
        if isinstance(order, on.Prepare):
            fragment.prepare()
        elif isinstance(order, on.Reduce):
            self._reduction = Reduction(
                self._manager, fragment.brought, brings=order.has_own, wiring=self._wiring
            )
        elif isinstance(order, on.Vote):
            return self._vote()
        else:
            assert self._reduction is not None  # a vote that said yes was on one
            fragment.apply(self._reduction.mean)
            self._reduction = None
        return ()

    def _vote(self) -> Instructions:
        assert self._reduction is not None  # the machine has ordered one before
        weight = self._reduction.wait()
        if not weight and self._manager.errored() is None:
            return self._machine.handle(on.NobodyBrought())
        return self._machine.handle(on.Voted(self._manager.should_commit()))

    # -- state --------------------------------------------------------------------------------

    def _shared(self) -> dict[str, Any]:
        return {
            "fragments": [each.shared() for each in self._fragments],
            "num_outer": self._machine.num_outer,
        }

    def _load_shared(self, state: dict[str, Any]) -> None:
        for fragment, given in zip(self._fragments, state["fragments"], strict=True):
            fragment.load_shared(given)
        self._machine.handle(on.Learned(state["num_outer"], self._machine.num_inner))

    def _local(self) -> dict[str, Any]:
        return {
            "fragments": [_tensors_of(each.module) for each in self._fragments],
            "inner": self._inner.state_dict(),
            "num_inner": torch.tensor([self._machine.num_inner]),
            "donor": _mark_of(self._manager.replica_id()),
        }

    @torch.no_grad()
    def _load_local(self, state: dict[str, Any]) -> None:
        for fragment, given in zip(self._fragments, state["fragments"], strict=True):
            for name, tensor in _tensors_of(fragment.module).items():
                tensor.copy_(given[name])
        self._inner.load_state_dict(state["inner"])
        num_inner = int(state["num_inner"].item())
        self._machine.handle(on.Learned(self._machine.num_outer, num_inner))


def _tensors_of(module: nn.Module) -> dict[str, Tensor]:
    """Return the live parameters and buffers of a module, by name."""
    named = (*module.named_parameters(), *module.named_buffers())
    return {name: tensor.detach() for name, tensor in named}


def _mark_of(replica_id: str) -> Tensor:
    """Return a tensor without bytes whose shape stands for a replica.

    Donors of one transfer must have tensors of the same shapes, else the first one is kept to.  The
    weights and moments of several replicas that have trained apart would be pieces of none.
    """
    return torch.empty(0, 1 + zlib.crc32(replica_id.encode()))
