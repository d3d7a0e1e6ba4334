"""Asking a service on the web that speaks JSON: etcd's gateway, Kubernetes.

Owns one request and its answer.  Such services are not of the job: they do not hold its secret,
and nothing of the job but the lease goes to them.
"""

from __future__ import annotations

import asyncio
import errno
import http.client
import json
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from danaus.core.errors import ConfigError

LONGEST_ANSWER_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Credentials:
    """How one proves oneself, and whom one believes; see ``lease_store.LeasePlace``."""

    ca_file: Path | None = None
    cert_file: Path | None = None
    token_file: Path | None = None

    def context(self) -> ssl.SSLContext:
        """Return what connections by TLS are opened with.

        Raises:
            ConfigError: A file cannot be used.
        """
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
            if self.cert_file is not None:
                context.load_cert_chain(self.cert_file)
        except (OSError, ssl.SSLError) as error:
            files = ", ".join(str(each) for each in (self.ca_file, self.cert_file) if each)
            raise ConfigError(f"certificates of the lease's store ({files})", str(error)) from error
        return context

    def headers(self) -> dict[str, str]:
        """Return what each request says of who asks; a token may have been replaced meanwhile."""
        if self.token_file is None:
            return {}
        return {"Authorization": f"Bearer {self.token_file.read_text().strip()}"}


class WebService:
    """One service with one or more servers; the one that answered last is asked first.

    Args:
        servers: ``http://host:port`` or ``https://host:port``.
        credentials: How one proves oneself.
        limit_s: After how long a server that does not answer is given up.

    Raises:
        ConfigError: A certificate cannot be used.
    """

    def __init__(self, servers: tuple[str, ...], credentials: Credentials, limit_s: float) -> None:
        self._servers, self._credentials, self._limit_s = servers, credentials, limit_s
        is_sealed = any(server.startswith("https:") for server in servers)
        self._context = credentials.context() if is_sealed else None
        self._first = 0

    def __str__(self) -> str:
        return self._servers[self._first]

    async def ask(
        self, method: str, path: str, body: dict[str, Any] | None = None
    ) -> tuple[int, dict[str, Any]]:
        """Send a request; return the answer's status and its JSON object.

        Raises:
            OSError: No server gave an answer that can be understood.
        """
        last: OSError = OSError(errno.ENOENT, "no server is named")
        for _ in self._servers:
            try:
                return await asyncio.to_thread(self._ask, method, path, body)
            except OSError as error:
                last = OSError(error.errno or errno.EIO, f"{self}: {error.strerror or error}")
                self._first = (self._first + 1) % len(self._servers)
        raise last

    def _ask(
        self, method: str, path: str, body: dict[str, Any] | None
    ) -> tuple[int, dict[str, Any]]:
        connection = self._connection()
        try:
            headers = {"Content-Type": "application/json", **self._credentials.headers()}
            data = None if body is None else json.dumps(body).encode()
            connection.request(method, path, data, headers)
            answer = connection.getresponse()
            text = answer.read(LONGEST_ANSWER_BYTES)
            value = json.loads(text) if text else {}
        except http.client.HTTPException as error:
            raise OSError(errno.EPROTO, f"no answer of HTTP ({error!r})") from error
        except ValueError as error:
            raise OSError(errno.EPROTO, f"its answer is no JSON ({error})") from error
        finally:
            connection.close()
        if not isinstance(value, dict):
            raise OSError(errno.EPROTO, "its answer is no JSON object")
        return answer.status, value

    def _connection(self) -> http.client.HTTPConnection:
        place = urlsplit(str(self))
        host = place.hostname or ""
        if place.scheme == "https":
            return http.client.HTTPSConnection(
                host, place.port, timeout=self._limit_s, context=self._context
            )
        return http.client.HTTPConnection(host, place.port, timeout=self._limit_s)


def refused(service: WebService, status: int, value: dict[str, Any]) -> OSError:
    """Return the error of an answer that is none of those that are understood."""
    why = value.get("message") or value.get("error") or "without a word"
    return OSError(errno.EPROTO, f"{service} answered {status}: {why}")
