"""What tests of a lab share: frames sent and counted, waits, and what a lab leaves behind."""

from __future__ import annotations

import os
import select
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from danaus.app.lab_numbers import taken_by
from danaus.app.lab_tools import until
from danaus.core.clock import Deadline
from danaus.testing.lab import Lab

LIMIT_S = 20.0
PORT = 7301
MANY = range(200)
"""What is sent; a node's kernel sends a few frames of its own, so that more may be dropped."""
_ECHO = (
    "import socket, sys\n"
    "listener = socket.create_server((sys.argv[1], int(sys.argv[2])))\n"
    "while True:\n"
    "    with listener.accept()[0] as peer:\n"
    "        while data := peer.recv(4096):\n"
    "            peer.sendall(socket.gethostname().encode() + b' ' + data)\n"
)
ECHO = (sys.executable, "-c", _ECHO, "{address}", "{port}")
_SO_RCVBUFFORCE = 33


def wait(condition: Callable[[], bool], waited_for: str) -> None:
    """Wait for what must come."""
    until(condition, Deadline.after(LIMIT_S), waited_for)


class Datagrams:
    """Datagrams from one node to another."""

    def __init__(self, lab: Lab, start: str, end: str, *, ipv6: bool = False) -> None:
        family = socket.AF_INET6 if ipv6 else socket.AF_INET
        with ExitStack() as opened:
            self._from = opened.enter_context(lab.socket(start, socket.SOCK_DGRAM, family=family))
            self._to = opened.enter_context(lab.socket(end, socket.SOCK_DGRAM, family=family))
            self._to.setblocking(False)
            # Room for all that a test sends, so that what is missing was dropped on the way.
            self._to.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, 1 << 22)
            self._to.bind((lab.address(end, ipv6=ipv6), 0))
            self._from.connect(self._to.getsockname())
            self._opened = opened.pop_all()
        self.got: list[int] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def send(self, *numbers: int) -> None:
        for number in numbers:
            self._from.send(number.to_bytes(4, "big"))

    def read(self) -> list[int]:
        """Return the numbers that have come so far, without waiting."""
        while select.select([self._to], [], [], 0)[0]:
            self.got.append(int.from_bytes(self._to.recv(64), "big"))
        return self.got


def echoed(lab: Lab, start: str, end: str) -> bytes:
    """Return what the agent ``ECHO`` of a host answers to a hello from another node."""
    with lab.socket(start) as client:
        client.settimeout(LIMIT_S)
        client.connect((lab.address(end), lab.plan.port))
        client.sendall(b"hello")
        return client.recv(64)


def connected(lab: Lab, start: str, end: str) -> tuple[socket.socket, socket.socket]:
    """Return the two ends of a TCP connection between two nodes; waits on them have a limit."""
    with lab.socket(end) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((lab.address(end), PORT))
        listener.listen()
        listener.settimeout(LIMIT_S)
        client = lab.socket(start)
        client.settimeout(LIMIT_S)
        client.connect((lab.address(end), PORT))
        server, _ = listener.accept()
    server.settimeout(LIMIT_S)
    return client, server


def quiet(connection: socket.socket) -> bool:
    """Tell whether neither data nor an end nor an error has come."""
    return not select.select([connection], [], [connection], 0)[0]


def namespaces_of(pid: int) -> set[str]:
    """Return the network, process and name namespaces of a process, as the kernel calls them."""
    return {os.readlink(f"/proc/{pid}/ns/{kind}") for kind in ("net", "pid", "uts", "mnt")}


def own(pid: int, other: int) -> set[str]:
    """Return the namespaces that a process does not share with another."""
    return namespaces_of(pid) - namespaces_of(other)


def users_of(namespaces: set[str]) -> list[int]:
    """Return the processes that are in any of these namespaces."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and namespaces_of(int(entry.name)) & namespaces:
                found.append(int(entry.name))
        except OSError:
            continue  # it has ended
    return found


def tables() -> str:
    """Return the tables of this machine's own firewall."""
    return subprocess.run(
        ["nft", "list", "tables"], capture_output=True, text=True, timeout=20, check=True
    ).stdout


def left_behind(labs: Path, name: str) -> list[str]:
    """Return what is still there of a lab that was taken down."""
    mark = os.fsencode(labs / name)
    processes = []
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes() if entry.name.isdigit() else b""
        except OSError:
            continue
        if mark in words:
            processes.append(words.replace(b"\0", b" ").decode(errors="replace"))
    mounts = [line for line in Path("/proc/self/mounts").read_text().splitlines() if name in line]
    folders = [str(each) for each in labs.iterdir()] if labs.is_dir() else []
    return [*processes, *mounts, *folders, *taken_by(labs / name, None)]
