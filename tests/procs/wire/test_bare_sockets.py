"""Sockets on a system that has not all that Linux has."""

from __future__ import annotations

import os
import socket

import pytest

from danaus.wire import stream as stream_module
from danaus.wire.sockets import peer_name, tune
from danaus.wire.stream import Carrier, UnixStream

pytestmark = pytest.mark.usefixtures("far_loopback")


@pytest.fixture
def connected():
    """Both ends of a connection that counts as one between machines."""
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as here,
        server.accept()[0] as there,
    ):
        yield here, there


def test_a_connection_gets_the_options_that_there_are(connected, monkeypatch):
    here, there = connected
    tune(here)
    assert here.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 60_000
    assert here.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 10
    idle = socket.TCP_KEEPIDLE
    monkeypatch.delattr(socket, "TCP_USER_TIMEOUT")
    monkeypatch.delattr(socket, "TCP_KEEPIDLE")
    monkeypatch.setattr(socket, "TCP_KEEPALIVE", idle, raising=False)  # macOS's name
    tune(there)
    assert there.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
    assert there.getsockopt(socket.IPPROTO_TCP, idle) == 10
    assert there.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT) == 3


def test_a_peer_is_named_without_its_pid_where_nobody_tells(short_dir, monkeypatch):
    path = str(short_dir / "s")
    with socket.socket(socket.AF_UNIX) as bound, socket.socket(socket.AF_UNIX) as dialled:
        bound.bind(path)
        bound.listen()
        dialled.connect(path)
        assert peer_name(dialled) == f"unix:{path} (pid {os.getpid()})"
        monkeypatch.delattr(socket, "SO_PEERCRED")
        assert peer_name(dialled) == f"unix:{path}"


@pytest.mark.parametrize("close_on_exec", [stream_module._CLOSE_ON_EXEC, 0])
def test_descriptors_that_come_along_are_for_no_child(close_on_exec, monkeypatch):
    monkeypatch.setattr(stream_module, "_CLOSE_ON_EXEC", close_on_exec)
    here, there = map(UnixStream, socket.socketpair())
    read, write = os.pipe()
    with here, there:
        head = Carrier(b"head")
        head.fds, here.carries = (read, write), True
        assert here.send([head]) == 4
        came = memoryview(bytearray(8))
        assert there.recv_into(came) == 4
        assert [os.get_inheritable(fd) for fd in there.fds] == [False, False]
    os.close(read)
    os.close(write)
