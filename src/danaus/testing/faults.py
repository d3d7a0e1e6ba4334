"""Faults at exact moments, for tests: a process that ends itself inside a named phase.

Owns ``Strike``, which a test hands to a run as an observer's maker.  The signal is real and is sent
by the victim to itself, so that the moment is exact; everything after it is the product's.
"""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from typing import Any

from torch import nn

from danaus.ft.observer import Moment, Observer
from danaus.train.replica import ReplicaWork
from danaus.wire.position import Phase

FORWARD = "forward"
REDUCE = "reduce"


@dataclass(frozen=True, slots=True)
class Strike:
    """Makes an observer that strikes its own process once.

    Args:
        where: ``"forward"`` (inside the network), ``"reduce"`` (inside the exchange), or a
            ``Moment``.
        step: The first step in which it may strike.
        incarnation: Of the victim; others are left alone.
        rank: Of the victim.
        number: Signal to send.
    """

    where: str
    step: int
    incarnation: int = 0
    rank: int = 0
    number: signal.Signals = signal.SIGKILL

    def __call__(self, work: ReplicaWork) -> Observer:
        place = work.place
        if (place.incarnation, place.rank) != (self.incarnation, self.rank):
            return Observer()
        return _Striker(self, work)


class _Striker(Observer):
    def __init__(self, strike: Strike, work: ReplicaWork) -> None:
        self._strike = strike
        self._step = 0
        self._phase = Phase.START
        if strike.where == FORWARD:
            _middle(work.trainer.network).register_forward_pre_hook(self._in_forward)

    def entered(self, step: int, phase: Phase, number: int) -> None:
        self._step, self._phase = step, phase
        if phase is Phase.REDUCE and number:
            self._reach(REDUCE, step)

    def moment(self, moment: Moment, step: int) -> None:
        self._reach(moment, step)

    def _in_forward(self, _module: nn.Module, _inputs: Any) -> None:
        if self._phase is Phase.COMPUTE:
            self._reach(FORWARD, self._step)

    def _reach(self, where: str, step: int) -> None:
        if where == self._strike.where and step >= self._strike.step:
            os.kill(os.getpid(), self._strike.number)


def _middle(network: nn.Module) -> nn.Module:
    """Return a block in the middle of a network, so that part of a forward is done."""
    blocks = getattr(network, "blocks", None)
    return blocks[len(blocks) // 2] if isinstance(blocks, nn.ModuleList) else network
