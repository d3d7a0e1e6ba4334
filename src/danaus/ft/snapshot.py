"""A committed step's state, held still while it is served (H-2).

Owns the copy, its memory bound and its buffer, which is kept from snapshot to snapshot.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from danaus.collectives.tensor_bytes import local_shard, view_bytes
from danaus.core.proc_root import free_bytes
from danaus.ft.manifest import Manifest, cut, facts_of

_ALIGN_BYTES = 64


class Snapshot:
    """One step's bytes: a copy, or the live tensors for as long as their owner holds them still.

    Args:
        manifest: What is in it.
        views: The bytes of each tensor, in the manifest's order.
        buffer: The copy's memory; None if the tensors are lent.
        on_served: Called when a learner was given its first bytes.
    """

    def __init__(
        self,
        manifest: Manifest,
        views: list[memoryview],
        buffer: Tensor | None,
        *,
        on_served: Callable[[], None] | None,
    ) -> None:
        self.manifest, self.buffer, self.on_served = manifest, buffer, on_served
        self.chunks = cut(manifest)
        self._views = views
        self.released = threading.Event()

    @property
    def step(self) -> int:
        """The committed step."""
        return self.manifest.step

    def chunk_bytes(self, index: int) -> memoryview:
        """Return the bytes of a chunk, in place."""
        chunk = self.chunks[index]
        return self._views[chunk.tensor][chunk.start : chunk.stop]


class SnapshotRoom:
    """Memory for what is lent: at most ``room_bytes`` of states and gradients at a time.

    Args:
        room_bytes: The bound; a quarter of what the machine has free now, unless given.
    """

    def __init__(self, room_bytes: int | None = None) -> None:
        self.room_bytes = _quarter_of_free_bytes() if room_bytes is None else room_bytes
        self._lock = threading.Lock()  # guards what follows
        self._used_bytes = 0
        self._kept: Tensor | None = None

    def take(
        self,
        named: Mapping[str, Tensor],
        step: int,
        *,
        note: str,
        fingerprint: str,
        on_served: Callable[[], None] | None,
        copied: bool = True,
    ) -> Snapshot:
        """Return a snapshot: a copy where there is room for one, else the tensors lent.

        Tensors that are on a device or not contiguous are copied in any case, others only if
        ``copied``.
        """
        manifest = Manifest(step, fingerprint, note, facts_of(named))
        sources = [local_shard(named[facts.name]) for facts in manifest.tensors]
        sizes = [-(-f.num_bytes // _ALIGN_BYTES) * _ALIGN_BYTES for f in manifest.tensors]
        plain = all(t.device.type == "cpu" and t.is_contiguous() for t in sources)
        buffer = self._buffer(sum(sizes), within_bound=plain) if copied or not plain else None
        if buffer is None:
            views = [view_bytes(tensor) for tensor in sources]
            return Snapshot(manifest, views, None, on_served=on_served)
        views, at = [], 0
        for source, facts, size in zip(sources, manifest.tensors, sizes, strict=True):
            part = buffer[at : at + facts.num_bytes]
            if facts.num_bytes:
                part.view(source.dtype).copy_(source.reshape(-1))
            views.append(view_bytes(part))
            at += size
        return Snapshot(manifest, views, buffer, on_served=on_served)

    @property
    def free_bytes(self) -> int:
        """How much of it is not in use."""
        with self._lock:
            return self.room_bytes - self._used_bytes

    def reserve(self, num_bytes: int) -> bool:
        """Count memory as used if there is room for it; tell whether there was."""
        with self._lock:
            has_room = self._used_bytes + num_bytes <= self.room_bytes
            self._used_bytes += num_bytes if has_room else 0
            return has_room

    def release(self, num_bytes: int) -> None:
        """Count memory as free again."""
        with self._lock:
            self._used_bytes -= num_bytes

    def give_back(self, snapshot: Snapshot) -> None:
        """Take the memory of a snapshot that nobody reads any more."""
        with self._lock:
            if snapshot.buffer is not None:
                self._used_bytes -= snapshot.buffer.numel()
                self._kept, snapshot.buffer = snapshot.buffer, None

    def _buffer(self, num_bytes: int, *, within_bound: bool) -> Tensor | None:
        with self._lock:
            if within_bound and self._used_bytes + num_bytes > self.room_bytes:
                return None
            self._used_bytes += num_bytes
            kept, self._kept = self._kept, None
        if kept is not None and kept.numel() == num_bytes:
            return kept
        return torch.empty(num_bytes, dtype=torch.uint8)


def _quarter_of_free_bytes() -> int:
    return free_bytes() // 4
