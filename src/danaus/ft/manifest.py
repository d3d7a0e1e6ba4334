"""What a state transfer carries, as values: which tensors, in which chunks (H-2).

Owns the words between a learner and its donors.  A chunk is a run of bytes of one tensor, so
that it goes from the donor's memory to the learner's without a stop; both sides cut alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

import msgspec
import torch
from torch import Tensor

from danaus.collectives.tensor_bytes import local_shard
from danaus.core.errors import FrameDamaged

HELLO_PREFIX = b"danaus state 4\n"
CHUNK_BYTES = 1 << 20
MANIFEST_LIMIT_BYTES = 64 << 20


class TensorFacts(msgspec.Struct, frozen=True, array_like=True):
    """One tensor of a state; ``dtype`` as torch spells it, without ``torch.``."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def num_bytes(self) -> int:
        """Bytes of the contiguous tensor."""
        itemsize: int = getattr(torch, self.dtype).itemsize
        size = itemsize
        for length in self.shape:
            size *= length
        return size


What = Literal["state", "print", "newest", "steps"]


class Wanted(msgspec.Struct, frozen=True, array_like=True):
    """What a learner asks a donor for.

    ``state``: that of ``step``.  ``print``: its fingerprint alone.  ``newest``: the newest step of
    a lineage whose gradient is kept.  ``steps``: the gradients from ``step`` to ``last``.
    """

    step: int
    what: What = "state"
    lineage_term: int = 0
    last: int = 0

    def __str__(self) -> str:
        return f"the {'state' if self.what in ('state', 'print') else 'gradients'} asked for"


class Manifest(msgspec.Struct, frozen=True):
    """What a donor serves: one committed step, or the gradients of several from ``step`` on.

    ``fingerprint`` is the donor's for this step (may be empty), or the gradients' digests;
    ``note`` is the participant's.
    """

    step: int
    fingerprint: str
    note: str
    tensors: tuple[TensorFacts, ...]
    chunk_bytes: int = CHUNK_BYTES


class Chunk(NamedTuple):
    """Bytes ``[start, stop)`` of tensor number ``tensor``."""

    tensor: int
    start: int
    stop: int


def facts_of(named: Mapping[str, Tensor]) -> tuple[TensorFacts, ...]:
    """Return the facts of a state's local shards, by name."""
    facts: list[TensorFacts] = []
    for name in sorted(named):
        tensor = local_shard(named[name])
        dtype = str(tensor.dtype).removeprefix("torch.")
        facts.append(TensorFacts(name, dtype, tuple(tensor.shape)))
    return tuple(facts)


def cut(manifest: Manifest) -> tuple[Chunk, ...]:
    """Return the chunks of a state, in order; tensors without bytes have none."""
    size = manifest.chunk_bytes
    return tuple(
        Chunk(number, start, min(start + size, facts.num_bytes))
        for number, facts in enumerate(manifest.tensors)
        for start in range(0, facts.num_bytes, size)
    )


def pack_hello(wanted: Wanted) -> bytes:
    """Return the first words of a learner."""
    return HELLO_PREFIX + msgspec.msgpack.encode(wanted)


def unpack_hello(hello: bytes) -> Wanted:
    """Return what a learner asks for.

    Raises:
        FrameDamaged: They are no learner's words.
    """
    try:
        return msgspec.msgpack.decode(hello[len(HELLO_PREFIX) :], type=Wanted)
    except msgspec.MsgspecError as error:
        raise FrameDamaged("a learner", f"hello of {len(hello)} bytes: {error}") from error


def pack_manifest(manifest: Manifest) -> bytes:
    """Return a manifest's bytes."""
    return msgspec.msgpack.encode(manifest)


def unpack_manifest(data: bytes | bytearray, donor: str) -> Manifest:
    """Return the manifest that ``data`` spells.

    Raises:
        FrameDamaged: It spells none, or one that nobody can cut.
    """
    try:
        manifest = msgspec.msgpack.decode(data, type=Manifest)
    except msgspec.MsgspecError as error:
        raise FrameDamaged(donor, f"no manifest: {error}") from error
    for facts in manifest.tensors:
        known = isinstance(getattr(torch, facts.dtype, None), torch.dtype)
        if not known or any(length < 0 for length in facts.shape):
            raise FrameDamaged(donor, f"no manifest: {facts}")
    if manifest.chunk_bytes < 1:
        raise FrameDamaged(donor, f"no manifest: chunks of {manifest.chunk_bytes} bytes")
    return manifest


def difference(have: tuple[TensorFacts, ...], want: tuple[TensorFacts, ...]) -> str:
    """Return in words how two lists of tensors differ first, empty if they do not."""
    mine, theirs = {each.name: each for each in have}, {each.name: each for each in want}
    for name in sorted(mine.keys() | theirs.keys()):
        if name not in mine:
            return f"{name} is not wanted"
        if name not in theirs:
            return f"{name} is missing"
        if mine[name] != theirs[name]:
            a, b = mine[name], theirs[name]
            return f"{name} is {b.dtype}{list(b.shape)}, not {a.dtype}{list(a.shape)}"
    return ""
