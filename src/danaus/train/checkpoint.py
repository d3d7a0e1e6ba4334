"""Checkpoints on disk: written whole or not at all, and believed only when every byte fits (H-5).

Owns the folder ``checkpoints``::

    step-000100/                     one checkpoint: complete, renamed into place
        manifest.json                step, epoch, identity; size and checksum of each file
        rank-0-of-2.safetensors ...  each rank's part of the state
    .writing-000100-1.3-replica-0/   one being written by replica-0 in epoch 1.3

Each rank of the writing replica writes and syncs its own file, then its receipt; whoever finds
all receipts writes the manifest and renames.  Nobody waits for anybody, any may die at any
moment, and losing the race is as good as winning it.

Invariants:
    H-5: a folder with the final name is complete; a failed write is a value, never an error.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec
import xxhash
from safetensors.torch import load as parse_tensors
from safetensors.torch import save as format_tensors
from torch import Tensor

from danaus.core.errors import CheckpointDamaged, ConfigError

_FINAL = re.compile(r"step-(\d{6,})")
_PARTIAL = re.compile(r"\.(?:writing|removing)-(\d{6,})-.*")
_MANIFEST = "manifest.json"
OTHERS_WRITE = "other ranks have yet to write"


class Part(msgspec.Struct, frozen=True):
    """One rank's file as it should be; ``fingerprint`` is that of the state it was written of."""

    name: str
    num_bytes: int
    checksum: str
    fingerprint: str = ""


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


@dataclass(frozen=True)
class Writer:
    """Who writes a checkpoint.

    Args:
        name: The replica.
        epoch: ``(term, n)`` of the step; names the folder, so that a fenced writer's files
            take no effect (Q-7).
        rank: This process's rank in its replica.
        num_ranks: Processes of the replica.
        fingerprint: Of this rank's state (Q-9).
    """

    name: str
    epoch: tuple[int, int]
    rank: int = 0
    num_ranks: int = 1
    fingerprint: str = ""


@dataclass(frozen=True)
class Written:
    """What became of a write: ``complete`` once the checkpoint can be restored.

    ``reason`` says why it is not: other ranks have yet to write, or what failed.
    """

    step: int
    complete: bool
    reason: str = ""


class Checkpoints:
    """The checkpoints of one run.

    Args:
        folder: Where they are; made when the first is written.
        identity: Digest of settings and text; others' checkpoints are refused.
        keep: How many of the newest complete ones are kept.
    """

    def __init__(self, folder: Path, *, identity: str, keep: int = 2) -> None:
        self.folder, self.identity, self.keep = folder, identity, keep

    # -- writing ----------------------------------------------------------------------------

    def write(self, step: int, state: Mapping[str, Tensor], writer: Writer) -> Written:
        """Write this rank's part of the state after ``step``; finish if it is the last part.

        Never raises for what the disk does: the reason is in the answer.

        Args:
            step: How many steps are applied.
            state: This rank's tensors by name.
            writer: Who writes.
        """
        term, n = writer.epoch
        partial = self.folder / f".writing-{step:06d}-{term}.{n}-{writer.name}"
        try:
            partial.mkdir(parents=True, exist_ok=True)
            part = _write_part(partial, state, writer)
            _write_synced(partial / f"{part.name}.receipt", msgspec.json.encode(part))
            complete = self._finish(step, partial, writer)
        except FileNotFoundError:  # another rank of this replica finished it, or it was removed
            complete = self._holds(step, term)
            return Written(step, complete, "" if complete else "its folder was taken away")
        except OSError as error:
            shutil.rmtree(partial, ignore_errors=True)
            return Written(step, False, f"{partial.name}: {error.strerror or error}")
        if complete:
            self.prune()
        return Written(step, complete, "" if complete else OTHERS_WRITE)

    def _finish(self, step: int, partial: Path, writer: Writer) -> bool:
        """Give the checkpoint its name if every part is there."""
        receipts = [
            partial / f"{_part_name(rank, writer.num_ranks)}.receipt"
            for rank in range(writer.num_ranks)
        ]
        if not all(receipt.exists() for receipt in receipts):
            return False
        parts = tuple(msgspec.json.decode(each.read_bytes(), type=Part) for each in receipts)
        manifest = Manifest(step, writer.epoch, self.identity, parts)
        _write_synced(partial / _MANIFEST, _seal(manifest))
        _sync_folder(partial)
        final = self._path(step)
        if self._holds(step, writer.epoch[0]):
            shutil.rmtree(partial, ignore_errors=True)
            return True
        if final.exists():  # damaged, or of a lineage that was rolled back
            self._remove(final, step)
        try:
            partial.rename(final)
        except OSError:
            if not self._holds(step, writer.epoch[0]):
                raise
            shutil.rmtree(partial, ignore_errors=True)
        _sync_folder(self.folder)
        return True

    def _holds(self, step: int, term: int) -> bool:
        """Tell whether a complete checkpoint of ``step``, of this or a later term, is there."""
        try:
            return self._read_manifest(step).epoch[0] >= term
        except (CheckpointDamaged, ConfigError):
            return False

    # -- reading ----------------------------------------------------------------------------

    def latest_valid(self) -> int:
        """Return the newest step whose checkpoint holds every byte it should, 0 if none does."""
        for step in sorted(self._steps(), reverse=True):
            try:
                self.verify(step)
            except (CheckpointDamaged, ConfigError):
                continue
            return step
        return 0

    def latest_sound(self) -> int:
        """Return the newest step whose checkpoint looks whole, 0 if none does; reads no tensor."""
        return max((step for step in self._steps() if self._looks_sound(step)), default=0)

    def fingerprint(self, step: int, *, rank: int = 0, num_ranks: int = 1) -> str:
        """Return what a rank's state was known by when its checkpoint was written, empty if there
        is no such checkpoint."""
        name = _part_name(rank, num_ranks)
        try:
            parts = self._read_manifest(step).parts
        except (CheckpointDamaged, ConfigError):
            return ""
        return next((part.fingerprint for part in parts if part.name == name), "")

    def verify(self, step: int) -> Manifest:
        """Read a whole checkpoint.

        Raises:
            CheckpointDamaged: Something is missing or differs from its checksum.
            ConfigError: It belongs to a run with other settings.
        """
        manifest = self._read_manifest(step)
        for part in manifest.parts:
            self._read_part(step, part)
        return manifest

    def read(self, step: int, *, rank: int = 0, num_ranks: int = 1) -> dict[str, Tensor]:
        """Return one rank's tensors of a checkpoint, by name.

        Raises:
            CheckpointDamaged: Something is missing or differs from its checksum.
            ConfigError: It belongs to a run with other settings.
        """
        manifest = self._read_manifest(step)
        name = _part_name(rank, num_ranks)
        for part in manifest.parts:
            if part.name == name:
                tensors: dict[str, Tensor] = parse_tensors(self._read_part(step, part))
                return tensors
        raise CheckpointDamaged(path=str(self._path(step)), why=f"it has no {name}")

    def _read_manifest(self, step: int) -> Manifest:
        path = self._path(step)
        try:
            manifest = _unseal((path / _MANIFEST).read_bytes())
        except OSError as error:
            why = f"no {_MANIFEST}: {error.strerror or error}"
            raise CheckpointDamaged(path=str(path), why=why) from None
        if manifest is None:
            raise CheckpointDamaged(path=str(path), why=f"{_MANIFEST} cannot be read")
        if manifest.step != step:
            raise CheckpointDamaged(path=str(path), why=f"it holds step {manifest.step}")
        if manifest.identity != self.identity:
            raise ConfigError(
                f"checkpoint {path} was written with other settings or other text",
                f"identity {self.identity}, it has {manifest.identity}",
                "resume with the run's own configuration",
            )
        return manifest

    def _read_part(self, step: int, part: Part) -> bytes:
        path = self._path(step) / part.name
        try:
            data = path.read_bytes()
        except OSError as error:
            raise CheckpointDamaged(path=str(path), why=f"{error.strerror or error}") from None
        if len(data) != part.num_bytes:
            why = f"{len(data)} bytes, its manifest says {part.num_bytes}"
            raise CheckpointDamaged(path=str(path), why=why)
        if _checksum(data) != part.checksum:
            raise CheckpointDamaged(path=str(path), why="its bytes differ from their checksum")
        return data

    # -- keeping house ----------------------------------------------------------------------

    def drop_after(self, step: int, term: int) -> None:
        """Remove what is void since the run went back to ``step`` and goes on in ``term``.

        Whoever restores late finds checkpoints of others that are ahead of it: those stay.
        """
        for later in [each for each in self._steps() if each > step]:
            if self._is_void(later, term):
                self._remove(self._path(later), later)

    def _is_void(self, step: int, term: int) -> bool:
        try:
            return self._read_manifest(step).epoch[0] < term
        except CheckpointDamaged:
            return True
        except ConfigError:  # another run's
            return False

    def drop(self, step: int) -> None:
        """Remove one checkpoint; others may do so at the same time."""
        self._remove(self._path(step), step)

    def prune(self) -> None:
        """Remove all but the newest ``keep`` complete ones, and what was left half written."""
        sound = {step: self._looks_sound(step) for step in sorted(self._steps())}
        kept = [step for step, is_sound in sound.items() if is_sound][-self.keep :]
        newest = max(kept, default=0)
        for step, is_sound in sound.items():
            if is_sound is not None and step < newest and step not in kept:
                self._remove(self._path(step), step)
        for path in self._entries():
            match = _PARTIAL.fullmatch(path.name)
            if match and int(match[1]) < newest:
                shutil.rmtree(path, ignore_errors=True)

    def _looks_sound(self, step: int) -> bool | None:
        """Tell whether manifest and sizes fit (checksums are for restoring); None: not ours."""
        try:
            manifest = self._read_manifest(step)
            sizes = [(self._path(step) / part.name).stat().st_size for part in manifest.parts]
        except ConfigError:
            return None
        except (CheckpointDamaged, OSError):
            return False
        return sizes == [part.num_bytes for part in manifest.parts]

    def _remove(self, path: Path, step: int) -> None:
        # First the name: a removal cut short must not leave half a checkpoint behind.
        removing = self.folder / f".removing-{step:06d}-{os.getpid()}"
        try:
            path.rename(removing)
        except OSError:
            return  # another did
        shutil.rmtree(removing, ignore_errors=True)

    def _path(self, step: int) -> Path:
        return self.folder / f"step-{step:06d}"

    def _steps(self) -> list[int]:
        matches = (_FINAL.fullmatch(path.name) for path in self._entries())
        return [int(match[1]) for match in matches if match]

    def _entries(self) -> Iterator[Path]:
        try:
            yield from list(self.folder.iterdir())
        except OSError:
            return


def _seal(manifest: Manifest) -> bytes:
    raw = msgspec.json.encode(manifest)
    return msgspec.json.encode(_Sealed(_checksum(raw), msgspec.Raw(raw)))


def _unseal(data: bytes) -> Manifest | None:
    try:
        sealed = msgspec.json.decode(data, type=_Sealed)
        if _checksum(bytes(sealed.manifest)) != sealed.checksum:
            return None
        return msgspec.json.decode(sealed.manifest, type=Manifest)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def _part_name(rank: int, num_ranks: int) -> str:
    return f"rank-{rank}-of-{num_ranks}.safetensors"


def _write_part(folder: Path, state: Mapping[str, Tensor], writer: Writer) -> Part:
    data = format_tensors({name: tensor.contiguous() for name, tensor in state.items()})
    name = _part_name(writer.rank, writer.num_ranks)
    _write_synced(folder / name, data)
    return Part(name, len(data), _checksum(data), writer.fingerprint)


def _write_synced(path: Path, data: bytes) -> None:
    """Write a file under a name of its own, sync it, then give it its name."""
    fresh = path.with_name(f"{path.name}.{os.getpid()}")
    with fresh.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    fresh.rename(path)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _checksum(data: bytes) -> str:
    return xxhash.xxh3_128_hexdigest(data)
