"""Where a lease lies: what every store can do, and how one is named.

Owns the protocol and its spelling::

    file                                 in the folder of the state
    file:/shared/folder                  in another one, which all candidates see
    etcd:http://a:2379,http://b:2379/run a key of etcd, at the first of its servers that answers
    kubernetes:NAMESPACE/NAME            a Lease of the cluster that this process runs in
    kubernetes:http://host:8001/NAMESPACE/NAME

What is in a lease, and when it is over, is ``quorum.lease``'s business.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from danaus.core.errors import ConfigError
from danaus.quorum.lease_etcd import EtcdLeaseStore
from danaus.quorum.lease_events import Entry, LeaseRecord
from danaus.quorum.lease_file import FileLeaseStore
from danaus.quorum.lease_kubernetes import IN_CLUSTER, KubernetesLeaseStore
from danaus.quorum.web_service import Credentials, WebService

_SERVERS = r"https?://[^/,\s]+(?:,https?://[^/,\s]+)*"
_ETCD = re.compile(rf"({_SERVERS})/(\S+)")
_KUBERNETES = re.compile(rf"(?:({_SERVERS})/)?([a-z0-9][a-z0-9-]*)/([a-z0-9][a-z0-9.-]*)")


class LeaseStore(Protocol):
    """A record with compare-and-set; every implementation passes the same tests."""

    async def read(self) -> Entry:
        """Return what it holds, not older than this call.

        Raises:
            OSError: It cannot be told.
        """
        ...

    async def swap(self, record: LeaseRecord, version: str) -> Entry | None:
        """Replace what has ``version``; return what then stands, None where another was faster.

        Raises:
            OSError: It is not known whether it was replaced.
        """
        ...


@dataclass(frozen=True, slots=True)
class LeasePlace:
    """Which store, and how one proves oneself to it.

    Args:
        spec: As this module's text says.
        ca_file: Certificates that have signed the store's (PEM); None: those of the system.
        cert_file: What to show a store that asks for a certificate: it and its key (PEM).
        token_file: A bearer token, read anew for each request.
    """

    spec: str = "file"
    ca_file: Path | None = None
    cert_file: Path | None = None
    token_file: Path | None = None

    def open(self, folder: Path, *, limit_s: float) -> LeaseStore:
        """Return the store.

        Args:
            folder: Of the state.
            limit_s: After how long an answer is not waited for any more.

        Raises:
            ConfigError: There is no such store, or it cannot be used so.
        """
        kind, _, rest = self.spec.partition(":")
        if kind == "file" and (not rest or rest.startswith("/")):
            return FileLeaseStore(Path(rest) if rest else folder / "lease")
        if kind == "etcd" and (found := _ETCD.fullmatch(rest)):
            servers, key = found.groups()
            return EtcdLeaseStore(self._service(servers, limit_s), key)
        if kind == "kubernetes" and (found := _KUBERNETES.fullmatch(rest)):
            servers, namespace, name = found.groups()
            service = self._service(servers, limit_s) if servers else self._cluster(limit_s)
            return KubernetesLeaseStore(service, namespace, name)
        raise ConfigError(
            f"there is no lease {self.spec!r}",
            "file, file:/FOLDER, etcd:http://HOST:2379/KEY or kubernetes:NAMESPACE/NAME",
        )

    def _service(self, servers: str, limit_s: float) -> WebService:
        credentials = Credentials(self.ca_file, self.cert_file, self.token_file)
        return WebService(tuple(servers.split(",")), credentials, limit_s)

    def _cluster(self, limit_s: float) -> WebService:
        ca, token = IN_CLUSTER.ca_file, IN_CLUSTER.token_file
        credentials = Credentials(self.ca_file or ca, self.cert_file, self.token_file or token)
        return WebService((IN_CLUSTER.server,), credentials, limit_s)
