"""One of two replicas whose averages are known beforehand, and one that is made to diverge.

Usage: ``python -m danaus.app.bench_ft_averages FOLDER ME WHAT`` with WHAT ``first_step`` (the
gradients 1 and 3), ``divergence`` (a bit of replica 1 flips after its third step) or ``buckets``
(tensors of which some are larger than a bucket).
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from torch import nn

from danaus.app.bench_processes import await_words, end_with_input, leave_word, say
from danaus.collectives.forming import Rendezvous
from danaus.collectives.meeting import MeetingPoint
from danaus.collectives.reductions import Averager
from danaus.collectives.socket_group import SocketGroup
from danaus.core.clock import Deadline
from danaus.ft.ledger import Committed
from danaus.ft.loop import Loop
from danaus.ft.observer import Observer
from danaus.ft.place import Place
from danaus.ft.step_plan import StepPlan
from danaus.ft.work import StepResult
from danaus.quorum.folder import RunFiles
from danaus.quorum.messages import Epoch
from danaus.wire.address import Address
from danaus.wire.blocking import PeerListener
from danaus.wire.secret import Secret

_GRADIENTS = (1.0, 3.0)
_LIMIT_S = 60.0
_FLIPPED_AFTER = 3
_STEPS = 6
BUCKET_BYTES = 1 << 20
SIZES = (100_000, 200_000, 1_500_000, 70_000, 300_000)
"""Elements: several buckets, and one tensor of almost six."""


def _one_weight() -> nn.Linear:
    model = nn.Linear(1, 1, bias=False)
    nn.init.zeros_(model.weight)
    return model


def _first_step(folder: Path, me: int) -> None:
    """Take one step of SGD at rate 1 from zero: the weight is the mean gradient, negated."""
    model = _one_weight()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    place = Place.in_folder(folder, f"replica-{me}")
    with Loop(model, optimizer, place, plan=StepPlan(1, 2)) as loop:
        for step in loop.steps():
            for m in step.microbatches():
                step.backward(model.weight.sum() * _GRADIENTS[m], 1)
    say(mean=-float(model.weight.detach()))


class _Flipping(Observer):
    """Flips one bit of a weight behind everybody's back; hears when that was noticed."""

    def __init__(self, model: nn.Linear | None) -> None:
        self._model = model
        self.caught_at = 0

    def committed(self, line: Committed, result: StepResult) -> None:
        if line.step == _FLIPPED_AFTER and self._model is not None:
            self._model.weight.detach().view(torch.int32).bitwise_xor_(1 << 5)
            self._model = None

    def discarded(self, step: int, epoch: Epoch, reason: str) -> None:
        self.caught_at = self.caught_at or step


def _divergence(folder: Path, me: int) -> None:
    model = _one_weight()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    place = Place.in_folder(folder, f"replica-{me}")
    watcher = _Flipping(model if me else None)
    plan = StepPlan(_STEPS, 2)
    with Loop(model, optimizer, place, plan=plan, observer=watcher) as loop:
        for step in loop.steps():
            for m in step.microbatches():
                step.backward(model.weight.sum() * _GRADIENTS[m], 1)
    say(
        flipped_after=_FLIPPED_AFTER,
        caught_at=watcher.caught_at,
        weight=float(model.weight.detach()),
    )


def _buckets(folder: Path, me: int) -> None:
    """Average tensors that differ at each member; say whether all of them are the exact means."""
    files = RunFiles(folder)
    secret = Secret.load(files.secret)
    listener = PeerListener(Address.parse(files.data_address(f"m{me}", 0)), secret)
    leave_word(folder / f"m{me}.address", str(listener.address))
    words = await_words([folder / f"m{each}.address" for each in (0, 1)], "the other member")
    members = {f"m{at}": Address.parse(word) for at, word in enumerate(words)}
    meeting = MeetingPoint(listener)
    group = SocketGroup(meeting, secret, Rendezvous("1.1", f"m{me}", members))
    deadline = Deadline.after(_LIMIT_S)
    group.form(deadline)
    held = [_drawn(each) for each in (0, 1)]
    means = [(a + b) / 2 for a, b in zip(*held, strict=True)]
    averager = Averager(group, tuple(members), bucket_bytes=BUCKET_BYTES)
    averager.average(held[me], deadline=deadline)
    same = [bool(torch.equal(a, b)) for a, b in zip(held[me], means, strict=True)]
    say(num_exact=sum(same), num_tensors=len(same))
    group.close()
    meeting.close()
    listener.close()


def _drawn(member: int) -> list[torch.Tensor]:
    draw = torch.Generator().manual_seed(member)
    return [torch.randn(size, generator=draw) for size in SIZES]


def main() -> None:
    """Do what the command line names."""
    folder, me, what = sys.argv[1:]
    end_with_input()
    torch.set_num_threads(1)
    parts = {"first_step": _first_step, "divergence": _divergence, "buckets": _buckets}
    parts[what](Path(folder), int(me))


if __name__ == "__main__":
    main()
