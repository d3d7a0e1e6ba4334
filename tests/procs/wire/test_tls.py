"""What TLS is there for: other machines' strangers, plain speakers, and who stands in between."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Callable

import pytest
from tests.procs.wire.doors import HANDSHAKE_LIMIT_S, Door, server, soon

from danaus.core.clock import Deadline
from danaus.core.errors import DeadlinePassed, HandshakeRefused
from danaus.wire.address import Address
from danaus.wire.blocking import dial_peer, recv_frame, send_frame
from danaus.wire.channel import dial
from danaus.wire.handshake import Dialler
from danaus.wire.secret import Secret
from danaus.wire.stream import TlsStream
from danaus.wire.tls import identity

SECRET = Secret.generate()
LOOPBACK = Address.tcp("127.0.0.1", 0)

pytestmark = pytest.mark.usefixtures("far_loopback")


# -- who dials us ----------------------------------------------------------------------------


def foreign(secret: Secret) -> ssl.SSLContext:
    """What a stranger dials with: it takes anybody, and shows its own certificate."""
    context = identity(secret).dials
    context.verify_mode = ssl.CERT_NONE
    return context


def nameless(highest: ssl.TLSVersion) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.maximum_version = highest
    return context


def client_hello() -> bytes:
    out = ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        identity(SECRET).dials.wrap_bio(ssl.MemoryBIO(), out).do_handshake()
    return out.read()


def says(words: bytes) -> Callable[[socket.socket], None]:
    def speak(sock: socket.socket) -> None:
        sock.sendall(words)
        while sock.recv(1000):  # perhaps an alert
            pass

    return speak


def shakes_hands(context: Callable[[], ssl.SSLContext], words: bytes) -> Callable[..., None]:
    def speak(sock: socket.socket) -> None:
        with context().wrap_socket(sock) as tls:
            tls.sendall(words)
            while tls.recv(1000):
                pass

    return speak


STRANGERS = {
    "plain": (says(Dialler(SECRET).start()), "without TLS"),
    "babble": (says(b"GET / HTTP/1.1\r\n\r\n"), "without TLS"),
    "garbage": (says(b"\x16" + bytes(range(255)) * 40), "no TLS 1.3"),
    "half a hello": (says(client_hello()[:100]), f"{HANDSHAKE_LIMIT_S} s"),
    "a hello and no more": (says(client_hello()), f"{HANDSHAKE_LIMIT_S} s"),
    "TLS 1.2": (
        shakes_hands(lambda: nameless(ssl.TLSVersion.TLSv1_2), b""),
        "no TLS 1.3",
    ),
    "no certificate": (
        shakes_hands(lambda: nameless(ssl.TLSVersion.TLSv1_3), Dialler(SECRET).start()),
        "no TLS 1.3",
    ),
    "a foreign certificate": (
        shakes_hands(lambda: foreign(Secret.generate()), Dialler(SECRET).start()),
        "secret",
    ),
    "babble inside": (shakes_hands(lambda: identity(SECRET).dials, b"GET /" * 9), "refused"),
    "silence inside": (
        shakes_hands(lambda: identity(SECRET).dials, b""),
        f"{HANDSHAKE_LIMIT_S} s",
    ),
}


@pytest.mark.parametrize("who", STRANGERS)
def test_a_stranger_loses_its_connection_and_disturbs_nobody(
    door: Door, who: str, caplog: pytest.LogCaptureFixture
) -> None:
    speak, why = STRANGERS[who]
    with door(LOOPBACK, SECRET) as address:
        with (
            socket.create_connection((address.host, address.port), 20.0) as sock,
            contextlib.suppress(ConnectionError, ssl.SSLError),
        ):
            speak(sock)  # returns, or fails, once the door has closed it
        with dial_peer(address, SECRET, b"good", deadline=soon()) as good:
            assert isinstance(good, TlsStream)
            send_frame(good, [b"served"], deadline=soon())
            assert recv_frame(good, deadline=soon()) == [b"served"]
    said = [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]
    assert len([each for each in said if why in each]) == 1, said
    assert len(said) == 1


def test_who_holds_another_secret_is_refused_at_the_certificate(door: Door) -> None:
    with door(LOOPBACK, SECRET) as address:
        with pytest.raises(HandshakeRefused, match=r"certificate.*secret"):
            dial_peer(address, Secret.generate(), b"good", deadline=soon())
        with pytest.raises(HandshakeRefused, match=r"certificate.*secret"):
            asyncio.run(dial(address, Secret.generate()))
        with dial_peer(address, SECRET, b"good", deadline=soon()) as good:
            send_frame(good, [b"served"], deadline=soon())
            assert recv_frame(good, deadline=soon()) == [b"served"]


@pytest.mark.parametrize("far_loopback", [None])
def test_a_real_address_is_tls_without_being_told(
    door: Door, own_address: Address, far_loopback: None
) -> None:
    with (
        door(own_address, SECRET) as address,
        dial_peer(address, SECRET, b"good", deadline=soon()) as good,
    ):
        assert isinstance(good, TlsStream)
        send_frame(good, [b"x" * 3_000_000], deadline=soon())
        assert recv_frame(good, deadline=soon()) == [b"x" * 3_000_000]


# -- whom we dial ----------------------------------------------------------------------------


def test_one_that_accepts_and_never_answers_holds_nobody() -> None:
    with server(lambda sock: None) as address:
        with pytest.raises(DeadlinePassed):
            dial_peer(address, SECRET, deadline=Deadline.after(0.1))
        with pytest.raises(DeadlinePassed):
            asyncio.run(dial(address, SECRET, limit_s=0.1))


@pytest.mark.parametrize(
    ("speak", "why"),
    [
        (lambda sock: sock.sendall(b"danausA1" * 10), "no TLS 1.3"),
        (lambda sock: sock.sendall(client_hello()), "no TLS 1.3"),
        (
            lambda sock: identity(Secret.generate()).accepts.wrap_socket(sock, server_side=True),
            r"certificate.*secret",
        ),
    ],
    ids=["plain", "a hello back", "a foreign certificate"],
)
def test_a_stranger_is_not_believed(speak: Callable[[socket.socket], None], why: str) -> None:
    with server(speak) as address:
        with pytest.raises(HandshakeRefused, match=why):
            dial_peer(address, SECRET, deadline=soon())
        with pytest.raises(HandshakeRefused, match=why):
            asyncio.run(dial(address, SECRET))
