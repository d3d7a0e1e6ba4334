"""A torch ``Store`` over the wire room's: how Gloo finds its peers without an open port (W-5)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import torch.distributed as dist
from torch._C._distributed_c10d import Store

from danaus.core.errors import DeadlinePassed
from danaus.wire.store_client import StoreClient


class WireStore(Store):
    """Keys and values of one rendezvous.

    Torch calls it from C++ threads too; the client gives each its own connection.

    Args:
        client: An open client; stays the caller's.
        prefix: Stands before every key, so that rendezvous of one job do not meet.
        limit_s: How long ``get`` and ``wait`` wait, unless a call says so.
    """

    def __init__(self, client: StoreClient, *, prefix: str = "", limit_s: float = 30.0) -> None:
        super().__init__()
        self._client, self._prefix, self._limit_s = client, prefix, limit_s

    def _key(self, key: str) -> str:
        return self._prefix + key

    def set(self, key: str, value: str | bytes) -> None:
        data = value.encode() if isinstance(value, str) else bytes(value)
        self._client.set(self._key(key), data, limit_s=self._limit_s)

    def get(self, key: str) -> bytes:
        with _StoreErrors():
            return self._client.get(self._key(key), limit_s=self._limit_s)

    def add(self, key: str, value: int) -> int:
        return self._client.add(self._key(key), value, limit_s=self._limit_s)

    def append(self, key: str, value: str | bytes) -> None:
        data = value.encode() if isinstance(value, str) else bytes(value)
        self._client.append(self._key(key), data, limit_s=self._limit_s)

    def compare_set(self, key: str, expected: str | bytes, desired: str | bytes) -> bytes:
        before = expected.encode() if isinstance(expected, str) else bytes(expected)
        after = desired.encode() if isinstance(desired, str) else bytes(desired)
        return self._client.compare_set(self._key(key), before, after, limit_s=self._limit_s)

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        limit_s = self._limit_s if timeout is None else timeout.total_seconds()
        with _StoreErrors():
            self._client.wait([self._key(key) for key in keys], limit_s=limit_s)

    def check(self, keys: Sequence[str]) -> bool:
        return self._client.check([self._key(key) for key in keys], limit_s=self._limit_s)

    def delete_key(self, key: str) -> bool:
        return self._client.delete(self._key(key), limit_s=self._limit_s)

    def num_keys(self) -> int:
        return self._client.num_keys(limit_s=self._limit_s)

    def has_extended_api(self) -> bool:
        return False

    def set_timeout(self, timeout: timedelta) -> None:
        self._limit_s = timeout.total_seconds()

    @property
    def timeout(self) -> timedelta:
        return timedelta(seconds=self._limit_s)


class _StoreErrors:
    """Turns a passed deadline into what torch expects of a store."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, DeadlinePassed):
            raise dist.DistStoreError(error.message()) from error
