"""The HTTP face: what it shows, whom it obeys, and what it bears from those who mean it harm."""

from __future__ import annotations

import asyncio
import base64
import http.client
import json
import signal
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from danaus.core.clock import Deadline
from danaus.quorum import http_server
from danaus.quorum.http_face import access_token
from danaus.quorum.http_server import HttpServer, Request, Response
from danaus.testing.addresses import own_host
from danaus.wire.address import Address

from .quorum_parts import LIMIT_S, Members, ServiceProcess


class Web:
    """Asks the face of a service."""

    def __init__(self, service: ServiceProcess) -> None:
        deadline = Deadline.after(LIMIT_S)
        while not service.lines("lighthouse_page"):
            assert not deadline.passed
            threading.Event().wait(0.02)
        self.url = service.lines("lighthouse_page")[-1]["url"]
        self.place = self.url.partition("//")[2].rstrip("/")
        self.token = access_token(service.secret)

    def ask(self, method: str, path: str, **headers: str) -> tuple[int, str, Any]:
        if self.url.startswith("https"):
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                self.place, timeout=LIMIT_S, context=context
            )
        else:
            connection = http.client.HTTPConnection(self.place, timeout=LIMIT_S)
        try:
            connection.request(method, path, headers=headers)
            answer = connection.getresponse()
            return answer.status, answer.read().decode(), answer.headers
        finally:
            connection.close()

    def get(self, path: str, **headers: str) -> str:
        status, body, _ = self.ask("GET", path, **headers)
        assert status == HTTPStatus.OK, body
        return body

    def bearer(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}


@pytest.fixture
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    folder = tmp_path_factory.mktemp("q")
    options = ("--expected-replicas", "2", "--http", "127.0.0.1:0", "--lease", "file")
    with ServiceProcess(folder, *options) as service:
        yield service.start()


@pytest.fixture
def members(service: ServiceProcess) -> Iterator[Members]:
    with Members(service) as members:
        yield members


def test_page_json_and_metrics_tell_of_the_quorum(service, members):
    web = Web(service)
    a, b = members.add("a"), members.add("b")
    a.client.step = 7
    told = members.form(a, b)
    deadline = Deadline.after(LIMIT_S)
    while True:
        status = json.loads(web.get("/status.json"))
        steps = {each["replica"]: each["step"] for each in status["quorum"]["processes"]}
        if steps == {"a": 7, "b": 0}:
            break
        assert not deadline.passed, steps
    assert status["turn"] == "leads"
    assert status["quorum"]["epoch"] == str(told.epoch)
    assert status["lease"]["term"] == 1
    assert "quorum_announced" in {each["event"] for each in status["decisions"]}
    page = web.get("/")
    assert "a, b joined" in page
    assert "7" in page
    families = {each.name for each in text_string_to_metric_families(web.get("/metrics"))}
    assert {"danaus_quorum_members", "danaus_replica_silence_seconds"} <= families
    assert web.get("/healthz") == "leads\n"


def test_a_drain_is_for_those_who_hold_the_secret(service, members):
    web = Web(service)
    a, b = members.add("a"), members.add("b")
    members.form(a, b)
    basic = base64.b64encode(f"x:{web.token}".encode()).decode()
    for headers in (
        {},
        {"Authorization": "Bearer " + "0" * 64},
        {"Authorization": f"Basic {basic}"},  # a browser may be made to send that
    ):
        status, why, answered = web.ask("POST", "/drain?replica=b", **headers)
        assert status == HTTPStatus.UNAUTHORIZED
        assert "danaus lighthouse token" in why
        assert "Bearer" in answered["WWW-Authenticate"]
    assert not service.lines("drain_asked")
    assert web.ask("POST", "/drain?replica=z", **web.bearer())[0] == HTTPStatus.NOT_FOUND
    assert web.ask("POST", "/drain", **web.bearer())[0] == HTTPStatus.BAD_REQUEST
    assert web.ask("POST", "/drain?replica=b&reason=repair", **web.bearer())[0] == HTTPStatus.OK
    assert a.changes.get(timeout=LIMIT_S).reason == "b leaves: repair"
    assert web.token not in service.journal.read_text()


def test_what_is_not_there_is_said(service):
    web = Web(service)
    status, said, _ = web.ask("GET", "/nothing")
    assert status == HTTPStatus.NOT_FOUND
    assert "/status.json" in said
    status, _, answered = web.ask("GET", "/drain")
    assert (status, answered["Allow"]) == (HTTPStatus.METHOD_NOT_ALLOWED, "POST")
    status, body, answered = web.ask("HEAD", "/")
    assert (status, body) == (HTTPStatus.OK, "")
    assert int(answered["Content-Length"]) > 100


def test_another_site_does_not_read_by_a_name_that_leads_here(service):
    web = Web(service)
    status, _, _ = web.ask("GET", "/status.json", Host="evil.example")
    assert status == HTTPStatus.UNAUTHORIZED
    web.get("/status.json", Host="evil.example", **web.bearer())


def test_from_other_machines_it_is_tls_and_asks_who_reads(tmp_path_factory):
    folder = tmp_path_factory.mktemp("q")
    host = own_host()
    if not host:
        pytest.skip("this machine has no address but loopback")
    for more in ((), ("--http-open-reading",)):
        options = ("--http", f"{host}:0", *more)
        with _again(folder, *options) as service:
            web = Web(service)
            assert web.url.startswith("https://")
            assert web.ask("GET", "/")[0] == (200 if more else 401)
            assert web.ask("POST", "/drain?replica=a")[0] == HTTPStatus.UNAUTHORIZED
            web.get("/status.json", **web.bearer())
            basic = base64.b64encode(f"anyone:{web.token}".encode()).decode()
            web.get("/", Authorization=f"Basic {basic}")
            assert service.end(signal.SIGTERM)[0] == 0
            service.journal.unlink()


@contextmanager
def _again(folder: Any, *options: str) -> Iterator[ServiceProcess]:
    (folder / "secret").unlink(missing_ok=True)
    with ServiceProcess(folder, *options) as service:
        yield service.start()


# -- the server alone -------------------------------------------------------------------------


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Address]:
    """A server on a thread of its own, with limits that a test can reach."""
    monkeypatch.setattr(http_server, "REQUEST_LIMIT_S", 0.5)
    monkeypatch.setattr(http_server, "MAX_CONNECTIONS", 4)
    ready: threading.Event = threading.Event()
    found: list[Address] = []
    loop = asyncio.new_event_loop()
    done = asyncio.Event()

    async def answer(request: Request) -> Response:
        return Response(HTTPStatus.OK, f"{request.method} {request.path} {request.body!r}")

    async def live() -> None:
        made = HttpServer(answer)
        found.append(await made.start(Address.parse("tcp:127.0.0.1:0")))
        ready.set()
        await done.wait()
        await made.close()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()

    def run() -> None:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(live())

    thread = threading.Thread(target=run)
    thread.start()
    assert ready.wait(LIMIT_S)
    yield found[0]
    loop.call_soon_threadsafe(done.set)
    thread.join(LIMIT_S)


def say(server: Address, data: bytes) -> bytes:
    """Send bytes and return all that comes until the server hangs up."""
    with socket.create_connection((server.host, server.port), timeout=LIMIT_S) as sock:
        sock.sendall(data)
        return rest_of(sock)


def rest_of(sock: socket.socket) -> bytes:
    got = b""
    try:
        while more := sock.recv(65536):
            got += more
    except ConnectionResetError:
        pass
    return got


def test_a_request_is_answered_and_the_connection_closed(server):
    got = say(server, b"POST /x?y=1 HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi")
    assert got.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"Connection: close\r\n" in got
    assert b"Content-Security-Policy: default-src 'none'" in got
    assert got.endswith(b"POST /x b'hi'")


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"GET /\r\n\r\n", 400),
        (b"GET http://x/ HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/2\r\n\r\n", 505),
        (b"DELETE / HTTP/1.1\r\n\r\n", 405),
        (b"GET / HTTP/1.1\r\nno colon\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n folded: x\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: 99999\r\n\r\n", 413),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 501),
        (b"GET /?" + b"&".join(b"a%d=1" % n for n in range(30)) + b" HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nx: " + b"y" * 40_000 + b"\r\n\r\n", 431),
    ],
)
def test_what_cannot_be_taken_is_refused_by_its_number(server, data, status):
    assert say(server, data).startswith(b"HTTP/1.1 %d " % status)


def test_who_speaks_slowly_is_hung_up_on(server):
    with socket.create_connection((server.host, server.port), timeout=LIMIT_S) as sock:
        sock.sendall(b"GET / HTTP/1.1\r\nx: ")
        assert rest_of(sock) == b""


def test_no_more_than_so_many_are_served_at_once(server):
    slow = [socket.create_connection((server.host, server.port)) for _ in range(4)]
    try:
        assert say(server, b"GET / HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.1 503 ")
        for sock in slow:
            sock.settimeout(LIMIT_S)
            assert rest_of(sock) == b"", "their time is over"
        assert say(server, b"GET / HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.1 200 ")
    finally:
        for sock in slow:
            sock.close()
