"""A lease as an object of Kubernetes: ``coordination.k8s.io/v1``, ``Lease``.

The version is the object's ``resourceVersion``; of two writes with one version the API server
refuses the second (409).  The record stands whole in an annotation; the fields that ``kubectl get
lease`` shows are filled in besides, for people, and nothing is decided by them.

Source: Kubernetes API conventions, concurrency control; API reference, Lease.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from danaus.core.clock import time_of_day
from danaus.quorum.lease_events import Entry, LeaseRecord
from danaus.quorum.web_service import WebService, refused

ANNOTATION = "danaus/lease"
_GROUP = "coordination.k8s.io/v1"
_NONE = ""
_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


@dataclass(frozen=True, slots=True)
class Cluster:
    """What a process in a pod finds of the cluster that it runs in."""

    server: str = "https://kubernetes.default.svc"
    ca_file: Path = _ACCOUNT / "ca.crt"
    token_file: Path = _ACCOUNT / "token"


IN_CLUSTER = Cluster()


class KubernetesLeaseStore:
    """A lease in a Kubernetes cluster; see ``lease_store.LeaseStore``.

    Its account needs ``get``, ``create`` and ``update`` of ``leases``.

    Args:
        service: The API server.
        namespace: Of the object.
        name: Of the object; it is made if it is not there.
    """

    def __init__(self, service: WebService, namespace: str, name: str) -> None:
        self._service, self._namespace, self._name = service, namespace, name
        self._all = f"/apis/{_GROUP}/namespaces/{namespace}/leases"

    async def read(self) -> Entry:
        status, value = await self._service.ask("GET", f"{self._all}/{self._name}")
        if status == 404:
            return Entry(None, _NONE)
        if status != 200:
            raise refused(self._service, status, value)
        return _entry(value)

    async def swap(self, record: LeaseRecord, version: str) -> Entry | None:
        wanted = self._object(record, version)
        if version == _NONE:
            status, value = await self._service.ask("POST", self._all, wanted)
        else:
            path = f"{self._all}/{self._name}"
            status, value = await self._service.ask("PUT", path, wanted)
        if status == 409 or (status == 404 and version != _NONE):
            return None
        if status not in (200, 201):
            raise refused(self._service, status, value)
        return _entry(value)

    def _object(self, record: LeaseRecord, version: str) -> dict[str, Any]:
        now = dt.datetime.fromtimestamp(time_of_day(), dt.UTC)
        metadata = {
            "name": self._name,
            "namespace": self._namespace,
            "annotations": {ANNOTATION: msgspec.json.encode(record).decode()},
        }
        if version != _NONE:
            metadata["resourceVersion"] = version
        return {
            "apiVersion": _GROUP,
            "kind": "Lease",
            "metadata": metadata,
            "spec": {
                "holderIdentity": record.holder,
                "leaseDurationSeconds": max(1, round(record.lease_s)),
                "leaseTransitions": record.term,
                "renewTime": now.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            },
        }


def _entry(value: dict[str, Any]) -> Entry:
    metadata = value.get("metadata") or {}
    text = (metadata.get("annotations") or {}).get(ANNOTATION, "")
    version = str(metadata.get("resourceVersion", ""))
    try:
        return Entry(msgspec.json.decode(text, type=LeaseRecord), version)
    except msgspec.DecodeError:
        return Entry(None, version)  # somebody else's, or edited: as one that was taken away
