"""A lease as a key of etcd, by the JSON gateway of its version 3.

The version is the key's modification revision, 0 where there is no key.  Both requests are
linearisable: they go through the cluster's own consensus.

Source: etcd API v3, ``Range`` and ``Txn``.  etcd's own leases are not used: they end by the clock
of its servers, and our candidates trust no clock but their own.
"""

from __future__ import annotations

import base64
from typing import Any

import msgspec

from danaus.quorum.lease_events import Entry, LeaseRecord
from danaus.quorum.web_service import WebService, refused

_NONE = "0"


class EtcdLeaseStore:
    """A lease in etcd; see ``lease_store.LeaseStore``.

    Args:
        service: Its servers.
        key: The key.
    """

    def __init__(self, service: WebService, key: str) -> None:
        self._service, self._key = service, _coded(key.encode())

    async def read(self) -> Entry:
        status, value = await self._service.ask("POST", "/v3/kv/range", {"key": self._key})
        if status != 200:
            raise refused(self._service, status, value)
        kvs = value.get("kvs") or [None]
        return _entry(kvs[0]) if kvs[0] is not None else Entry(None, _NONE)

    async def swap(self, record: LeaseRecord, version: str) -> Entry | None:
        data = _coded(msgspec.json.encode(record))
        same = {"key": self._key, "target": "MOD", "result": "EQUAL", "mod_revision": version}
        put = {"request_put": {"key": self._key, "value": data}}
        status, value = await self._service.ask(
            "POST", "/v3/kv/txn", {"compare": [same], "success": [put]}
        )
        if status != 200:
            raise refused(self._service, status, value)
        if not value.get("succeeded"):
            return None
        # The revision of a transaction is that of all that it wrote.
        header = value.get("header") or {}
        if "revision" not in header:
            raise refused(self._service, status, value)
        return Entry(record, str(header["revision"]))


def _coded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _entry(kv: dict[str, Any]) -> Entry:
    version = str(kv.get("mod_revision", _NONE))
    try:
        record = msgspec.json.decode(base64.b64decode(kv.get("value", "")), type=LeaseRecord)
    except (msgspec.DecodeError, ValueError):
        return Entry(None, version)  # not ours; it counts as a lease that was taken away
    return Entry(record, version)
