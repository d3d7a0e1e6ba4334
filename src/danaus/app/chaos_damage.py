"""Wrong bits, on purpose: in memory, in what is sent, and in what lies on the disk.

Owns one function per place.  They are called on the training thread; where the bits to be damaged
do not exist yet, the next call that makes them is wrapped, once.  Loaded in workers only.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from danaus.app.chaos_harm import Say, replace
from danaus.app.chaos_inside import Struck
from danaus.collectives.lane import Kind, Lane, unpack_header
from danaus.collectives.socket_group import SocketGroup

BIT = 1 << 12
"""Of a float's fraction: small enough to look sane."""

_STATE = {"parameters": "model.", "optimizer": "optim."}
_SENT = {"transfer": (Kind.CHUNK,), "exchange": (Kind.PARTIAL, Kind.RESULT)}


def first_of(work: Struck, where: str) -> tuple[str, Tensor]:
    """Return name and tensor of the first parameter, or of what the optimiser keeps for it."""
    beginning = _STATE[where]
    return next(each for each in work.state().items() if each[0].startswith(beginning))


def flip(tensor: Tensor) -> None:
    """Flip one bit of a tensor of float32."""
    with torch.no_grad():
        tensor.view(torch.int32).view(-1)[0] ^= BIT


def put_nan(tensor: Tensor) -> None:
    """Make one number of a tensor none."""
    with torch.no_grad():
        tensor.view(-1)[0] = torch.nan


def flip_in_gradient(work: Struck, say: Say) -> None:
    """Flip one bit of the gradient of the leaf that is computed next."""
    _after_next(work, "compute_leaf", lambda gradient, *_: _damage(gradient, flip, say))


def put_nan_in_gradient(work: Struck, say: Say) -> None:
    """Make one number of the gradient of the leaf that is computed next none."""
    _after_next(work, "compute_leaf", lambda gradient, *_: _damage(gradient, put_nan, say))


def flip_in_sum(say: Say) -> None:
    """Flip one bit of this process's copy of the gradient that is reduced next."""

    def damage(*arguments: Any, **_: Any) -> None:
        _none, _group, _partials, out = arguments
        _damage(out, flip, say)

    _after_next(SocketGroup, "reduce_tree", damage)


def flip_in_flight(where: str, say: Say) -> None:
    """Flip one bit of the next message that this process sends, after its checksum was taken.

    Args:
        where: ``"transfer"`` (a part of the state, to a learner) or ``"exchange"`` (of gradients).
        say: Called just before.
    """
    kinds, begin = _SENT[where], Lane._begin

    def damaging(lane: Lane) -> bool:
        begun = begin(lane)
        if begun and len(lane._sending) == 2:
            head, payload = lane._sending
            if unpack_header(head, lane.peer).kind in kinds and Lane._begin is damaging:
                replace(Lane, "_begin", begin)
                if say():
                    copy = bytearray(payload)
                    copy[len(copy) // 2] ^= 1
                    lane._sending[1] = memoryview(copy)
        return begun

    replace(Lane, "_begin", damaging)


def flip_on_disk(part: Path) -> None:
    """Flip one bit in the middle of a file."""
    place = part.stat().st_size // 2
    with part.open("r+b") as file:
        file.seek(place)
        byte = file.read(1)[0]
        file.seek(place)
        file.write(bytes([byte ^ 1]))


def newest_checkpoint(folder: Path) -> Path | None:
    """Return the first file of tensors of the newest checkpoint in a folder of them."""
    newest = max(folder.glob("step-*"), default=None)
    return min(newest.glob("*.safetensors"), default=None) if newest is not None else None


def _damage(tensor: Tensor, damage: Callable[[Tensor], None], say: Say) -> None:
    if say():
        damage(tensor)


def _after_next(owner: object, name: str, damage: Callable[..., None]) -> None:
    """Have ``damage`` called with the result and the arguments of the next call of a method."""
    method = getattr(owner, name)

    @functools.wraps(method)
    def once(*args: Any, **kwargs: Any) -> Any:
        replace(owner, name, method)
        result = method(*args, **kwargs)
        damage(result, *args, **kwargs)
        return result

    replace(owner, name, once)
