"""Numbers that tell whether two processes hold the same bits.

``fingerprint`` is of a state (Q-9): a number per tensor, computed where the tensor lives.  On the
CPU it is a hash of its bytes, elsewhere an integer sum of its words.  ``digest`` is of one reduced
gradient (T-1).  Both are compared within one platform only.

Invariants:
    One flipped bit anywhere changes the fingerprint.  In a sum that is certain (a single word
    enters it once, and integer sums wrap without loss), of a hash it fails once in 2**64.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import NamedTuple

import torch
import xxhash
from torch import Tensor

from danaus.collectives.tensor_bytes import local_shard, view_bytes


def _word_sum(tensor: Tensor) -> Tensor:
    """Return the wrapping sum of a tensor's 8-byte words and of its last bytes, as int64.

    The same for the same bits, wherever the tensor begins in memory.
    """
    flat = tensor.contiguous().reshape(-1)
    if flat.is_complex():
        flat = torch.view_as_real(flat).reshape(-1)
    if flat.data_ptr() % 8:
        flat = flat.clone()
    octets = flat.view(torch.uint8)
    whole = octets.numel() // 8 * 8
    words = octets[:whole].view(torch.int64)
    # Summing 8-byte words runs at the speed of memory; narrower ones are widened one by one.
    return words.sum() + octets[whole:].sum(dtype=torch.int64)


def fingerprint(named: Mapping[str, Tensor]) -> str:
    """Return 16 hex characters that stand for the bits of all tensors, their names and shapes.

    Args:
        named: Any shapes, dtypes and devices; of sharded tensors the local shard counts.
    """
    return Fingerprints().of(named)


class Fingerprints:
    """Fingerprints of one state at one moment after the other.

    What is known of its tensors is kept for as long as they are the same memory: taken twice a
    step, a fingerprint costs little more than reading the state.
    """

    def __init__(self) -> None:
        self._known: dict[str, _Known] = {}
        self._names: list[str] = []

    @torch.no_grad()
    def of(self, named: Mapping[str, Tensor]) -> str:
        """Return the fingerprint of ``named``, which ``fingerprint`` returns as well."""
        if named.keys() != self._known.keys():
            self._known, self._names = {}, sorted(named)
        hashed = xxhash.xxh3_64()
        elsewhere: dict[torch.device, list[Tensor]] = {}
        for name in self._names:
            given = named[name]
            known = self._known.get(name)
            tensor = given
            if known is None or not known.holds(given):
                tensor = local_shard(given)
                if known is None or known.place != _place(tensor):
                    known = self._known[name] = _learn(name, given, tensor)
            hashed.update(known.words)
            if known.view is not None:
                hashed.update(_number(known.view))
            elif tensor.device.type == "cpu":
                hashed.update(_number(view_bytes(tensor.contiguous())))
            else:
                elsewhere.setdefault(tensor.device, []).append(tensor)
        # One transfer from each device, not one per tensor.
        for tensors in elsewhere.values():
            sums = torch.stack([_word_sum(tensor) for tensor in tensors]).tolist()
            hashed.update(struct.pack(f"<{len(sums)}q", *sums))
        return hashed.hexdigest()


_Place = tuple[int, torch.Size, tuple[int, ...], torch.dtype]


class _Known(NamedTuple):
    """A tensor's place in memory, what is hashed of it beside its bits, and its bytes.

    ``given`` is it where nothing has to be done to come from it to its bytes.
    """

    place: _Place
    words: bytes
    view: memoryview | None
    given: Tensor | None

    def holds(self, given: Tensor) -> bool:
        """Tell whether it is the very tensor, where and as it was."""
        if self.given is not given:
            return False
        there = self.place[0] == given.data_ptr() and given.is_contiguous()
        return there and self.place[1] == given.shape


def _place(tensor: Tensor) -> _Place:
    return tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype


def _learn(name: str, given: Tensor, tensor: Tensor) -> _Known:
    words = f"{name}\0{tensor.dtype}\0{tuple(tensor.shape)}\0".encode()
    plain = tensor.device.type == "cpu" and tensor.is_contiguous()
    # The view keeps the memory alive: nothing else can come to lie where it is.
    view = view_bytes(tensor) if plain else None
    whole = plain and tensor.data_ptr() == given.data_ptr() and tensor.shape == given.shape
    return _Known(_place(tensor), words, view, given if whole else None)


def _number(view: memoryview) -> bytes:
    return xxhash.xxh3_64_digest(view)


@torch.no_grad()
def digest(flat: Tensor) -> str:
    """Return 16 hex characters that stand for the bits of a reduced gradient.

    Args:
        flat: ``[num_elements]``; on the CPU all bytes are hashed, elsewhere it is ``fingerprint``.
    """
    if flat.device.type != "cpu":
        return fingerprint({"": flat})
    return xxhash.xxh3_64_hexdigest(view_bytes(flat.detach().contiguous()))
