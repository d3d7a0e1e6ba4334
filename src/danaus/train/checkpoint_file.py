"""The files of a checkpoint: one rank's part, the manifest, and how they are written whole (H-5).

Owns the format of a part (safetensors, written piece by piece without a second copy in memory)
and what a manifest says of it.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import xxhash
from safetensors.torch import load as parse_tensors
from torch import Tensor

from danaus.core import disk_sync
from danaus.core.errors import CheckpointDamaged
from danaus.ft.manifest import TensorFacts
from danaus.ft.snapshot import Snapshot
from danaus.train.resharding import Piece

_LENGTH = struct.Struct("<Q")
_ALIGN_BYTES = 8
_DTYPES = {
    "bool": "BOOL",
    "uint8": "U8",
    "int8": "I8",
    "int16": "I16",
    "int32": "I32",
    "int64": "I64",
    "float16": "F16",
    "bfloat16": "BF16",
    "float32": "F32",
    "float64": "F64",
}


class Part(msgspec.Struct, frozen=True):
    """One rank's file as it should be.

    ``fingerprint`` is that of the state it was written of; ``pieces`` are the tensors of which it
    holds some rows only, by name.
    """

    name: str
    num_bytes: int
    checksum: str
    fingerprint: str = ""
    pieces: dict[str, Piece] = {}


class Manifest(msgspec.Struct, frozen=True):
    """What a complete checkpoint holds.

    ``epoch`` is ``(term, n)`` of its last step; ``identity`` digests settings and text.
    """

    step: int
    epoch: tuple[int, int]
    identity: str
    parts: tuple[Part, ...]


class _Sealed(msgspec.Struct, frozen=True):
    """A manifest as it stands on disk, under its own checksum."""

    checksum: str
    manifest: msgspec.Raw


def part_name(rank: int, num_ranks: int) -> str:
    """Return the name of one rank's file."""
    return f"rank-{rank}-of-{num_ranks}.safetensors"


def write_part(path: Path, snapshot: Snapshot, stop: Callable[[], bool]) -> Part | None:
    """Write a state, sync it, then give the file its name; return None if it was stopped.

    Args:
        path: The file.
        snapshot: The state.
        stop: Asked now and then: nobody wants it any more.

    Raises:
        OSError: The disk refuses.
    """
    checksum, num_bytes = xxhash.xxh3_128(), 0
    fresh = _fresh(path)
    with fresh.open("wb") as file:
        for data in _bytes_of(snapshot):
            if stop():
                return None
            checksum.update(data)
            num_bytes += len(data)
            file.write(data)
        file.flush()
        disk_sync.sync(file.fileno())
    fresh.rename(path)
    return Part(path.name, num_bytes, checksum.hexdigest())


def read_part(path: Path, part: Part) -> dict[str, Tensor]:
    """Return the tensors of a file, by name.

    Raises:
        CheckpointDamaged: It is not as it should be.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise CheckpointDamaged(path=str(path), why=f"{error.strerror or error}") from None
    if len(data) != part.num_bytes:
        why = f"{len(data)} bytes, its manifest says {part.num_bytes}"
        raise CheckpointDamaged(path=str(path), why=why)
    if checksum_of(data) != part.checksum:
        raise CheckpointDamaged(path=str(path), why="its bytes differ from their checksum")
    tensors: dict[str, Tensor] = parse_tensors(data)
    return tensors


def write_synced(path: Path, data: bytes) -> None:
    """Write a file under a name of its own, sync it, then give it its name."""
    fresh = _fresh(path)
    with fresh.open("wb") as file:
        file.write(data)
        file.flush()
        disk_sync.sync(file.fileno())
    fresh.rename(path)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder outlive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        disk_sync.sync(descriptor)
    finally:
        os.close(descriptor)


def checksum_of(data: bytes) -> str:
    """Return what bytes are compared by."""
    return xxhash.xxh3_128_hexdigest(data)


def seal(manifest: Manifest) -> bytes:
    """Return the bytes of a manifest's file."""
    raw = msgspec.json.encode(manifest)
    return msgspec.json.encode(_Sealed(checksum_of(raw), msgspec.Raw(raw)))


def unseal(data: bytes) -> Manifest | None:
    """Return the manifest that a file holds, None if it is not as it was written."""
    try:
        sealed = msgspec.json.decode(data, type=_Sealed)
        if checksum_of(bytes(sealed.manifest)) != sealed.checksum:
            return None
        return msgspec.json.decode(sealed.manifest, type=Manifest)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def _fresh(path: Path) -> Path:
    return path.with_name(f"{path.name}.{os.getpid()}")


def _bytes_of(snapshot: Snapshot) -> Iterator[bytes | memoryview]:
    header = _header(snapshot.manifest.tensors)
    yield _LENGTH.pack(len(header)) + header
    for index in range(len(snapshot.chunks)):
        yield snapshot.chunk_bytes(index)


def _header(tensors: tuple[TensorFacts, ...]) -> bytes:
    described, at = {}, 0
    for facts in tensors:
        end = at + facts.num_bytes
        described[facts.name] = {
            "dtype": _DTYPES[facts.dtype],
            "shape": facts.shape,
            "data_offsets": (at, end),
        }
        at = end
    text = json.dumps(described, separators=(",", ":")).encode()
    return text + b" " * (-len(text) % _ALIGN_BYTES)
