"""The HTTP face of a candidate: a page, JSON, metrics, and the drain of a replica.

Owns what each path means and who may ask it::

    GET  /             the page              GET  /metrics      Prometheus
    GET  /status.json  all of it             GET  /healthz      this process answers
    POST /drain?replica=NAME                 leave a replica out of the next quorum

Who changes something proves that it holds the job's secret, by a token that follows from it
(``access_token``); so does who reads from another machine, unless reading is open.  Off loopback
all of it is TLS.  A browser may show the token as a password; a change takes it as a bearer token
only, which no other site can have a browser send.

Invariants:
    W-2: the secret is never sent; nothing is changed for whoever has not proven that it holds it.
    Q-3: a candidate that stands by changes nothing, and says who leads.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import ipaddress
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, Protocol

import msgspec

from danaus.quorum.http_server import HttpServer, Request, Response
from danaus.quorum.lighthouse_status import LighthouseStatus
from danaus.quorum.metrics import KIND, metrics_text
from danaus.quorum.page import page
from danaus.wire.address import Address
from danaus.wire.secret import Secret
from danaus.wire.tls import page_context

_PURPOSE = b"danaus http token 1"
_JSON = "application/json"
_HTML = "text/html; charset=utf-8"
_ASKS = {"WWW-Authenticate": 'Basic realm="danaus lighthouse", Bearer'}


def access_token(secret: Secret) -> str:
    """Return the token of those who hold ``secret``; the secret does not follow from it."""
    return secret.mac(_PURPOSE, b"").hex()


class Shown(Protocol):
    """What is shown: a candidate."""

    def status(self) -> LighthouseStatus:
        """Return all that is shown."""
        ...

    def drain(self, replica_id: str, reason: str) -> bool | None:
        """Drain a replica; False: there is no such replica, None: this one does not lead."""
        ...


class HttpFace:
    """Serves one candidate.

    Args:
        shown: The candidate.
        secret: The job's secret.
        open_reading: Who reads from another machine need not prove anything either.
    """

    def __init__(self, shown: Shown, secret: Secret, *, open_reading: bool = False) -> None:
        self._shown, self._secret = shown, secret
        self._token = access_token(secret)
        self._open_reading = open_reading
        self._is_local = True
        self._server: HttpServer | None = None
        self.url = ""

    async def start(self, address: Address) -> None:
        """Listen at a TCP address; ``url`` then says where.

        Raises:
            AddressRefused: It cannot be bound.
            ConfigError: The user's own authority for TLS cannot be used.
        """
        self._is_local = address.is_loopback
        context = None if self._is_local else page_context(self._secret)
        self._server = HttpServer(self._answer, context)
        bound = await self._server.start(address)
        scheme = "http" if self._is_local else "https"
        self.url = f"{scheme}://{str(bound).removeprefix('tcp:')}/"

    async def close(self) -> None:
        """Listen no more."""
        if self._server is not None:
            await self._server.close()

    async def _answer(self, request: Request) -> Response:
        reads, route = (
            request.method != "POST",
            _ROUTES.get((request.path, request.method == "POST")),
        )
        if route is None:
            return self._not_there(request)
        if request.path != "/healthz" and not self._may(request, reads=reads):
            why = "prove that you hold the job's secret: danaus lighthouse token prints the token\n"
            return Response(HTTPStatus.UNAUTHORIZED, why, headers=_ASKS)
        return route(self, request)

    def _not_there(self, request: Request) -> Response:
        methods = [("GET, HEAD", "POST")[post] for path, post in _ROUTES if path == request.path]
        if methods:
            allow = {"Allow": methods[0]}
            return Response(HTTPStatus.METHOD_NOT_ALLOWED, f"{methods[0]} only\n", headers=allow)
        there = ", ".join(sorted({path for path, _ in _ROUTES}))
        return Response(HTTPStatus.NOT_FOUND, f"there is {there}\n")

    # -- who may -----------------------------------------------------------------------------------

    def _may(self, request: Request, *, reads: bool) -> bool:
        """Tell whether who asks may have what it asks for."""
        kind, _, given = request.headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer":
            return self._is_token(given.strip())
        if not reads:
            return False
        if kind.lower() == "basic":
            return self._is_token(_password(given.strip()))
        # A page of another site must not read here by a name that it lets point to this machine.
        return self._open_reading or (self._is_local and _names_machine(request))

    def _is_token(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(), self._token.encode())

    # -- what there is -----------------------------------------------------------------------------

    def _page(self, _request: Request) -> Response:
        return Response(HTTPStatus.OK, page(self._shown.status()), _HTML)

    def _status(self, _request: Request) -> Response:
        return _json(HTTPStatus.OK, msgspec.to_builtins(self._shown.status()))

    def _metrics(self, _request: Request) -> Response:
        return Response(HTTPStatus.OK, metrics_text(self._shown.status()), KIND)

    def _health(self, _request: Request) -> Response:
        return Response(HTTPStatus.OK, f"{self._shown.status().turn}\n")

    def _drain(self, request: Request) -> Response:
        replica = request.query.get("replica", "")
        if not replica:
            return _json(HTTPStatus.BAD_REQUEST, {"error": "name a replica: /drain?replica=NAME"})
        reason = request.query.get("reason", "")[:200] or "a person asked for it"
        done = self._shown.drain(replica, reason)
        if done is None:
            lease = self._shown.status().lease
            leader = lease.address if lease is not None else ""
            what = {"error": "this candidate does not lead", "leader": leader}
            return _json(HTTPStatus.CONFLICT, what)
        if not done:
            return _json(HTTPStatus.NOT_FOUND, {"error": f"there is no replica {replica!r}"})
        return _json(HTTPStatus.OK, {"drained": replica, "reason": reason})


def _json(status: HTTPStatus, value: Any) -> Response:
    text = msgspec.json.format(msgspec.json.encode(value), indent=1).decode()
    return Response(status, text + "\n", _JSON)


def _password(coded: str) -> str:
    """Return the password of Basic credentials; the name before it does not matter."""
    try:
        return base64.b64decode(coded, validate=True).decode().partition(":")[2]
    except (binascii.Error, UnicodeDecodeError):
        return ""


def _names_machine(request: Request) -> bool:
    """Tell whether the request names this machine by a number or as localhost."""
    host = request.headers.get("host", "localhost")
    name = host.rpartition("]")[0].removeprefix("[") if "]" in host else host.partition(":")[0]
    try:
        return name == "localhost" or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


_ROUTES: dict[tuple[str, bool], Callable[[HttpFace, Request], Response]] = {
    ("/", False): HttpFace._page,
    ("/status.json", False): HttpFace._status,
    ("/metrics", False): HttpFace._metrics,
    ("/healthz", False): HttpFace._health,
    ("/drain", True): HttpFace._drain,
}
"""What each path does, of those that read and (True) of those that change."""
