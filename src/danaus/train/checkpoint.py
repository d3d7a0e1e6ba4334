"""Checkpoints on disk: written whole or not at all, and believed only when every byte fits (H-5).

Owns the folder ``checkpoints``::

    step-000100/                     one checkpoint: complete, renamed into place
        manifest.json                step, epoch, identity; size and checksum of each file
        rank-0-of-2.safetensors ...  each rank's part of the state
    .writing-000100-1.3-replica-0/   one being written by replica-0 in epoch 1.3
    .void-000040-2                   in term 2 the run went back to step 40: what older terms have
                                     written of later steps is void, whenever it comes

Each rank of the writing replica writes and syncs its own file, then its receipt; whoever finds
all receipts writes the manifest and renames.  Nobody waits for anybody, any may die at any
moment, and losing the race is as good as winning it.

Invariants:
    H-5: a folder with the final name is complete; a failed write is a value, never an error.
    Q-7, T-7: what was written before the run went back takes no effect afterwards.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from torch import Tensor

from danaus.core.errors import CheckpointDamaged, ConfigError
from danaus.ft.snapshot import Snapshot, SnapshotRoom
from danaus.train.checkpoint_file import (
    Manifest,
    Part,
    part_name,
    read_part,
    seal,
    sync_folder,
    unseal,
    write_part,
    write_synced,
)
from danaus.train.resharding import Pieces

_FINAL = re.compile(r"step-(\d{6,})")
_PARTIAL = re.compile(r"\.(?:writing|removing)-(\d{6,})-.*")
_VOID = re.compile(r"\.void-(\d{6,})-(\d+)")
_MANIFEST = "manifest.json"
_TAKEN = "its folder was taken away"


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
        pieces: Which tensors it holds some rows of only.
    """

    name: str
    epoch: tuple[int, int]
    rank: int = 0
    num_ranks: int = 1
    fingerprint: str = ""
    pieces: Pieces = field(default_factory=dict)


@dataclass(frozen=True)
class Written:
    """What became of a write: ``complete`` once the checkpoint can be restored.

    ``reason`` says why it never will be; without one, other ranks have yet to write.
    """

    step: int
    complete: bool
    reason: str = ""


@dataclass(frozen=True)
class _Mark:
    """In ``term`` the run went back to ``step``."""

    path: Path
    step: int
    term: int


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
            state: This rank's tensors by name; they must stay as they are meanwhile.
            writer: Who writes.
        """
        lent = SnapshotRoom(0).take(
            state, step, note="", fingerprint=writer.fingerprint, on_served=None
        )
        part = self.write_part(step, lent, writer)
        return self.finish(step, part, writer) if isinstance(part, Part) else part

    def write_part(
        self,
        step: int,
        snapshot: Snapshot,
        writer: Writer,
        *,
        stop: Callable[[], bool] = lambda: False,
    ) -> Part | Written:
        """Write this rank's part, which counts once ``finish`` is called; or why it is not there.

        Args:
            step: How many steps are applied.
            snapshot: This rank's state.
            writer: Who writes.
            stop: Asked now and then: nobody wants it any more.
        """
        partial = self._partial(step, writer)
        path = partial / part_name(writer.rank, writer.num_ranks)
        try:
            partial.mkdir(parents=True, exist_ok=True)
            part = write_part(path, snapshot, stop)
        except FileNotFoundError:
            return Written(step, False, _TAKEN)
        except OSError as error:
            return self.abandon(step, writer, f"{partial.name}: {error.strerror or error}")
        if part is None:
            return self.abandon(step, writer, "nobody wants it any more")
        pieces = dict(writer.pieces)
        return msgspec.structs.replace(part, fingerprint=writer.fingerprint, pieces=pieces)

    def finish(self, step: int, part: Part, writer: Writer) -> Written:
        """Let this rank's part count; finish the checkpoint if it is the last part.

        Args:
            step: How many steps are applied.
            part: What ``write_part`` returned.
            writer: Who writes.
        """
        partial, term = self._partial(step, writer), writer.epoch[0]
        try:
            write_synced(partial / f"{part.name}.receipt", msgspec.json.encode(part))
            complete = self._finish(step, partial, writer)
        except FileNotFoundError:  # another rank of this replica finished it, or it was removed
            complete = self._holds(step, term)
            return Written(step, complete, "" if complete else _TAKEN)
        except OSError as error:
            return self.abandon(step, writer, f"{partial.name}: {error.strerror or error}")
        if complete:
            self.prune()
        return Written(step, complete)

    def abandon(self, step: int, writer: Writer, reason: str) -> Written:
        """Take away what is half written; return why."""
        shutil.rmtree(self._partial(step, writer), ignore_errors=True)
        return Written(step, False, reason)

    def _partial(self, step: int, writer: Writer) -> Path:
        term, n = writer.epoch
        return self.folder / f".writing-{step:06d}-{term}.{n}-{writer.name}"

    def _finish(self, step: int, partial: Path, writer: Writer) -> bool:
        """Give the checkpoint its name if every part is there."""
        receipts = [
            partial / f"{part_name(rank, writer.num_ranks)}.receipt"
            for rank in range(writer.num_ranks)
        ]
        if not all(receipt.exists() for receipt in receipts):
            return False
        parts = tuple(msgspec.json.decode(each.read_bytes(), type=Part) for each in receipts)
        manifest = Manifest(step, writer.epoch, self.identity, parts)
        write_synced(partial / _MANIFEST, seal(manifest))
        sync_folder(partial)
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
        sync_folder(self.folder)
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

    def verify(self, step: int) -> None:
        """Read a whole checkpoint.

        Raises:
            CheckpointDamaged: Something is missing or differs from its checksum.
            ConfigError: It belongs to a run with other settings.
        """
        for _ in self.read_all(step):
            pass

    def num_ranks(self, step: int) -> int:
        """Return by how many ranks a checkpoint was written.

        Raises:
            CheckpointDamaged: Its manifest cannot be read.
            ConfigError: It belongs to a run with other settings.
        """
        return len(self._read_manifest(step).parts)

    def read(
        self, step: int, *, rank: int = 0, num_ranks: int = 1
    ) -> tuple[dict[str, Tensor], str]:
        """Return one rank's tensors of a checkpoint by name, and what their state is known by.

        Raises:
            CheckpointDamaged: Something is missing or differs from its checksum.
            ConfigError: It belongs to a run with other settings.
        """
        name = part_name(rank, num_ranks)
        for part in self._read_manifest(step).parts:
            if part.name == name:
                return read_part(self._path(step) / name, part), part.fingerprint
        raise CheckpointDamaged(path=str(self._path(step)), why=f"it has no {name}")

    def read_all(self, step: int) -> Iterator[tuple[Part, dict[str, Tensor]]]:
        """Return what each rank wrote, one after the other.

        Raises:
            CheckpointDamaged: Something is missing or differs from its checksum.
            ConfigError: It belongs to a run with other settings.
        """
        for part in self._read_manifest(step).parts:
            yield part, read_part(self._path(step) / part.name, part)

    def _read_manifest(self, step: int) -> Manifest:
        path = self._path(step)
        try:
            manifest = unseal((path / _MANIFEST).read_bytes())
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

    # -- keeping house ----------------------------------------------------------------------

    def drop_after(self, step: int, term: int) -> None:
        """Void what is later than ``step``: the run went back to it and goes on in ``term``.

        Whoever restores late finds checkpoints of others that are ahead of it: those stay.  A disk
        that takes no mark of it stops nobody: what is there is removed all the same.
        """
        for mark in self._marks():
            if mark.term > term:  # of a service that is forgotten
                mark.path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self.folder.mkdir(parents=True, exist_ok=True)
            write_synced(self.folder / f".void-{step:06d}-{term}", self.identity.encode())
            sync_folder(self.folder)
        for later in [each for each in self._named() if each > step]:
            if self._is_void(later, step, term):
                self._remove(self._path(later), later)

    def _is_void(self, step: int, restored: int, term: int) -> bool:
        """Tell whether a checkpoint is none of the run that went back to ``restored``."""
        if step <= restored:
            return False
        try:
            return self._read_manifest(step).epoch[0] < term
        except CheckpointDamaged:
            return True
        except ConfigError:  # another run's
            return False

    def prune(self) -> None:
        """Remove all but the newest ``keep`` complete ones, and what was left half written."""
        live = self._steps()
        sound = {step: self._looks_sound(step) and step in live for step in sorted(self._named())}
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
        """Return the steps of all complete checkpoints that are not void."""
        marks = list(self._marks())
        return [
            step
            for step in self._named()
            if not any(self._is_void(step, mark.step, mark.term) for mark in marks)
        ]

    def _marks(self) -> Iterator[_Mark]:
        for path in self._entries():
            match = _VOID.fullmatch(path.name)
            with contextlib.suppress(OSError):
                if match and path.read_bytes() == self.identity.encode():  # else another run's
                    yield _Mark(path, int(match[1]), int(match[2]))

    def _named(self) -> list[int]:
        matches = (_FINAL.fullmatch(path.name) for path in self._entries())
        return [int(match[1]) for match in matches if match]

    def _entries(self) -> Iterator[Path]:
        try:
            yield from list(self.folder.iterdir())
        except OSError:
            return
