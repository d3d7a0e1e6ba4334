"""What leases lie on in tests: a real etcd, and an API server in small for Kubernetes.

``SmallCluster`` is no Kubernetes: it keeps objects of one kind, gives each write a new
``resourceVersion``, answers 409 to a write with an older one or to a second creation, and asks for
a token.  What else a real API server may do is not tested.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from danaus.core.clock import Deadline

LIMIT_S = 20.0
NO_ETCD = "etcd is not installed: apt install etcd-server"
TOKEN = "a token of the cluster"
_LEASES = re.compile(r"/apis/coordination\.k8s\.io/v1/namespaces/([a-z-]+)/leases(?:/([a-z-]+))?")


@contextlib.contextmanager
def etcd(folder: Path) -> Iterator[str]:
    """Run an etcd of one server; yield where it answers, nothing where there is none."""
    program = shutil.which("etcd")
    if program is None:
        yield ""
        return
    client, peer = (f"http://127.0.0.1:{_free_port()}" for _ in range(2))
    command = [
        program, "--data-dir", str(folder / "etcd"), "--name", "one",
        "--listen-client-urls", client, "--advertise-client-urls", client,
        "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
        "--initial-cluster", f"one={peer}",
    ]  # fmt: skip
    with (folder / "etcd.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        _wait_until_healthy(client.removeprefix("http://"), folder / "etcd.log")
        yield client
    finally:
        process.kill()
        process.wait(LIMIT_S)


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def _wait_until_healthy(place: str, log: Path) -> None:
    deadline = Deadline.after(LIMIT_S)
    while True:
        connection = http.client.HTTPConnection(place, timeout=1.0)
        try:
            connection.request("GET", "/health")
            if connection.getresponse().status == 200:
                return
        except (OSError, http.client.HTTPException):
            pass
        finally:
            connection.close()
        assert not deadline.passed, log.read_text()[-2000:]
        threading.Event().wait(0.05)


class _Handler(BaseHTTPRequestHandler):
    server: SmallCluster

    def log_message(self, *_: Any) -> None:
        """Say nothing."""

    def _serve(self) -> None:
        length = int(self.headers.get("Content-Length", 0))
        body = json.loads(self.rfile.read(length)) if length else {}
        with self.server.turn:
            status, value = self.server.answer(self.command, self.path, body, dict(self.headers))
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = do_PUT = _serve  # noqa: N815


class SmallCluster(ThreadingHTTPServer):
    """An API server that knows leases only."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.turn = threading.Lock()
        self.objects: dict[tuple[str, str], dict[str, Any]] = {}
        self.version = 100
        self.url = f"http://127.0.0.1:{self.server_port}"

    def answer(
        self, method: str, path: str, body: dict[str, Any], headers: dict[str, str]
    ) -> tuple[int, dict[str, Any]]:
        found = _LEASES.fullmatch(path)
        if headers.get("Authorization") != f"Bearer {TOKEN}":
            return 401, {"message": "Unauthorized"}
        if found is None:
            return 404, {"message": "no such resource"}
        namespace = found[1]
        key = (namespace, found[2] or body["metadata"]["name"])
        known = self.objects.get(key)
        if method == "GET":
            return (200, known) if known else (404, {"message": "not found"})
        if method == "POST" and known:
            return 409, {"message": "already exists"}
        if method == "PUT" and known is None:
            return 404, {"message": "not found"}
        asked = body["metadata"].get("resourceVersion")
        if method == "PUT" and known and asked != known["metadata"]["resourceVersion"]:
            return 409, {"message": "the object has been modified"}
        self.version += 7
        body["metadata"]["resourceVersion"] = str(self.version)
        self.objects[key] = body
        return (201 if method == "POST" else 200), body


@contextlib.contextmanager
def small_cluster() -> Iterator[SmallCluster]:
    """Run one on a thread."""
    server = SmallCluster()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join(LIMIT_S)
        server.server_close()
