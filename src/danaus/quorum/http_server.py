"""HTTP for people and their tools: one request a connection, and everything bounded.

Owns reading a request and writing its answer.  HTTP/1.0 and 1.1 without what a page does not need:
no connection is kept open, no body comes in pieces.  What a request means is ``http_face``'s.

Invariants:
    No connection lives longer than ``REQUEST_LIMIT_S``, however slowly its other end speaks or
    listens; there are never more than ``MAX_CONNECTIONS``, and none takes more memory than
    ``HEAD_LIMIT_BYTES`` and ``BODY_LIMIT_BYTES``.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from urllib.parse import parse_qsl

from danaus.core.errors import AddressRefused
from danaus.wire.address import Address

REQUEST_LIMIT_S = 10.0
MAX_CONNECTIONS = 64
HEAD_LIMIT_BYTES = 16 * 1024
BODY_LIMIT_BYTES = 16 * 1024
_END_OF_HEAD = b"\r\n\r\n"
_SAFE = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Connection": "close",
}
_log = logging.getLogger("danaus.quorum")


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked.  Names of ``headers`` are in small letters."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class Response:
    """What is answered."""

    status: HTTPStatus
    body: str
    kind: str = "text/plain; charset=utf-8"
    headers: Mapping[str, str] = field(default_factory=dict)


Answer = Callable[[Request], Awaitable[Response]]


class HttpServer:
    """Answers requests until it is closed.

    Args:
        answer: Called with each request that can be read.
        context: For TLS; None: it speaks plainly.
    """

    def __init__(self, answer: Answer, context: ssl.SSLContext | None = None) -> None:
        self._answer, self._context = answer, context
        self._server: asyncio.Server | None = None
        self._num_open = 0

    async def start(self, address: Address) -> Address:
        """Listen at a TCP address; return it with the real port.

        Raises:
            AddressRefused: It cannot be bound.
        """
        try:
            self._server = await asyncio.start_server(
                self._serve, address.host, address.port, limit=HEAD_LIMIT_BYTES, ssl=self._context
            )
        except OSError as error:
            why = f"cannot be bound: {error.strerror or error}"
            raise AddressRefused(str(address), why) from error
        return Address.tcp(address.host, self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        """Listen no more; requests that are under way end within their limit."""
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._num_open += 1
        try:
            async with asyncio.timeout(REQUEST_LIMIT_S):
                response, is_head = await self._respond(reader)
                writer.write(_bytes(response, is_head=is_head))
                await writer.drain()
                writer.close()
                await writer.wait_closed()
        except (OSError, asyncio.IncompleteReadError) as error:  # a limit that passed is one, too
            _log.debug("a request came to nothing: %s", error)
        finally:
            writer.transport.abort()
            self._num_open -= 1

    async def _respond(self, reader: asyncio.StreamReader) -> tuple[Response, bool]:
        if self._num_open > MAX_CONNECTIONS:
            return _refusal(HTTPStatus.SERVICE_UNAVAILABLE, "too many connections"), False
        request = await _read(reader)
        if isinstance(request, Response):
            return request, False
        return await self._answer(request), request.method == "HEAD"


def _refusal(status: HTTPStatus, why: str) -> Response:
    return Response(status, f"{why}\n")


async def _read(reader: asyncio.StreamReader) -> Request | Response:
    """Return a request, or what is answered to one that cannot be taken."""
    try:
        head = await reader.readuntil(_END_OF_HEAD)
    except asyncio.LimitOverrunError:
        what = f"a request's head has {HEAD_LIMIT_BYTES} bytes at most"
        return _refusal(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, what)
    first, *lines = head[: -len(_END_OF_HEAD)].decode("latin-1").split("\r\n")
    words, headers = first.split(" "), _headers(lines)
    refused = _unknown(words)
    if refused is not None:
        return refused
    if headers is None:
        return _refusal(HTTPStatus.BAD_REQUEST, "a header line cannot be read")
    length = _length(headers)
    if isinstance(length, Response):
        return length
    path, _, text = words[1].partition("?")
    try:
        query = dict(parse_qsl(text, keep_blank_values=True, max_num_fields=20))
    except ValueError:
        return _refusal(HTTPStatus.BAD_REQUEST, "the query cannot be read")
    return Request(words[0], path, query, headers, await reader.readexactly(length))


def _unknown(words: list[str]) -> Response | None:
    """Return what is answered to a first line of a request that cannot be taken."""
    if len(words) != 3 or not words[1].startswith("/"):
        return _refusal(HTTPStatus.BAD_REQUEST, "the first line is METHOD /PATH HTTP/1.1")
    if words[2] not in ("HTTP/1.0", "HTTP/1.1"):
        why = "HTTP/1.0 and HTTP/1.1 are spoken"
        return _refusal(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED, why)
    if words[0] not in ("GET", "HEAD", "POST"):
        return _refusal(HTTPStatus.METHOD_NOT_ALLOWED, "GET, HEAD and POST are known")
    return None


def _headers(lines: list[str]) -> dict[str, str] | None:
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        name = name.lower()
        # What two readers may understand differently is refused (RFC 9112, 5.1 and 6.3).
        twice = name in headers and name in ("authorization", "content-length", "host")
        if not colon or not name or name != name.strip() or twice:
            return None
        headers[name] = value.strip()
    return headers


def _length(headers: Mapping[str, str]) -> int | Response:
    if "transfer-encoding" in headers:
        return _refusal(HTTPStatus.NOT_IMPLEMENTED, "a body is sent whole, with its length")
    text = headers.get("content-length", "0")
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        return _refusal(HTTPStatus.BAD_REQUEST, "the length of the body cannot be read")
    if int(text) > BODY_LIMIT_BYTES:
        what = f"a body has {BODY_LIMIT_BYTES} bytes at most"
        return _refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, what)
    return int(text)


def _bytes(response: Response, *, is_head: bool) -> bytes:
    body = response.body.encode()
    headers = {
        "Content-Type": response.kind,
        "Content-Length": str(len(body)),
        **_SAFE,
        **response.headers,
    }
    lines = [f"HTTP/1.1 {response.status.value} {response.status.phrase}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    head = "\r\n".join(lines).encode("latin-1") + _END_OF_HEAD
    return head if is_head else head + body
