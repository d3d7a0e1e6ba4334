"""What TLS is there for: other machines' strangers, plain speakers, and who stands in between."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import logging
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from danaus.core.clock import Deadline
from danaus.core.errors import ChannelClosed, DeadlinePassed, HandshakeRefused
from danaus.wire.address import Address
from danaus.wire.blocking import PeerListener, dial_peer, recv_frame, send_frame
from danaus.wire.channel import Channel, dial, listen
from danaus.wire.handshake import Dialler
from danaus.wire.secret import Authority, Secret
from danaus.wire.stream import TlsStream
from danaus.wire.tls import identity

SECRET = Secret.generate()
LOOPBACK = Address.tcp("127.0.0.1", 0)
HANDSHAKE_LIMIT_S = 0.5

pytestmark = pytest.mark.usefixtures("far_loopback")


def soon() -> Deadline:
    return Deadline.after(20.0)


# -- who dials us ----------------------------------------------------------------------------


@contextlib.contextmanager
def loop_door(address: Address, secret: Secret) -> Iterator[Address]:
    """A channel listener that sends every message back, on a loop in a thread of its own."""
    ready: list[Address] = []
    begun = threading.Event()

    async def serve(channel: Channel) -> None:
        with contextlib.suppress(ChannelClosed):
            while True:
                await channel.send(await channel.recv())
        channel.close()

    async def work() -> None:
        listener = await listen(address, secret, serve, handshake_limit_s=HANDSHAKE_LIMIT_S)
        ready.append(listener.address)
        begun.set()
        await asyncio.to_thread(over.wait, 60.0)
        await listener.close()

    over = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(asyncio.run, work())
        assert begun.wait(10.0)
        yield ready[0]
        over.set()
        running.result()


@contextlib.contextmanager
def thread_door(address: Address, secret: Secret) -> Iterator[Address]:
    """A ``PeerListener`` whose peers get their next message back."""
    listener = PeerListener(address, secret, handshake_limit_s=HANDSHAKE_LIMIT_S)
    with ThreadPoolExecutor(1) as pool:

        def echo() -> None:
            with listener.take(b"good", soon()) as stream:
                send_frame(stream, recv_frame(stream, deadline=soon()), deadline=soon())

        echoing = pool.submit(echo)
        yield listener.address
        echoing.result()
    listener.close()


Door = Callable[[Address, Secret], contextlib.AbstractContextManager[Address]]


@pytest.fixture(params=[loop_door, thread_door])
def door(request: pytest.FixtureRequest) -> Door:
    return request.param


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


@contextlib.contextmanager
def server(serve: Callable[[socket.socket], None]) -> Iterator[Address]:
    """Somebody else's: takes one connection after the other, until the block is left."""
    with socket.create_server(("127.0.0.1", 0)) as bound:

        def work() -> None:
            while True:
                try:
                    sock, _ = bound.accept()
                except OSError:
                    return
                with sock, contextlib.suppress(OSError):
                    sock.settimeout(20.0)
                    serve(sock)
                    while sock.recv(1000):
                        pass

        thread = threading.Thread(target=work)
        thread.start()
        try:
            yield Address.tcp(*bound.getsockname())
        finally:
            bound.shutdown(socket.SHUT_RDWR)
            thread.join(20.0)


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


# -- the user's own authority ----------------------------------------------------------------


class OwnAuthority:
    """A user's authority that has signed certificates of several hosts."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._key = generate_private_key(SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "our company")])
        (folder / "authority").write_bytes(self._sign("our company", self._key.public_key(), True))

    def _sign(self, name: str, key: object, is_authority: bool) -> bytes:
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        now = dt.datetime.now(dt.UTC)
        return (
            x509.CertificateBuilder(self._name, subject, key, x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(days=1))
            .not_valid_after(now + dt.timedelta(days=1))
            .add_extension(x509.BasicConstraints(is_authority, None), critical=True)
            .sign(self._key, SHA256())
            .public_bytes(Encoding.PEM)
        )

    def host(self, name: str) -> Authority:
        key = generate_private_key(SECP256R1())
        where = self._folder / name
        where.with_suffix(".pem").write_bytes(self._sign(name, key.public_key(), False))
        where.with_suffix(".key").touch(0o600)
        where.with_suffix(".key").write_bytes(
            key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        )
        authority = str(self._folder / "authority")
        return Authority(str(where.with_suffix(".pem")), str(where.with_suffix(".key")), authority)


def test_hosts_of_the_users_own_authority_are_one_job(door: Door, tmp_path: Path) -> None:
    ours = OwnAuthority(tmp_path)
    key = bytes(range(32))
    here, there = Secret(key, ours.host("here")), Secret(key, ours.host("there"))
    with door(LOOPBACK, here) as address:
        with pytest.raises(HandshakeRefused, match="certificate"):
            dial_peer(address, Secret(key), b"good", deadline=soon())
        with dial_peer(address, there, b"good", deadline=soon()) as good:
            send_frame(good, [b"served"], deadline=soon())
            assert recv_frame(good, deadline=soon()) == [b"served"]


def test_a_colleague_of_the_same_authority_does_not_stand_in_between(
    door: Door, tmp_path: Path
) -> None:
    """It passes on the proofs of both ends, which hold for its own certificates only."""
    ours = OwnAuthority(tmp_path)
    key = bytes(range(32))
    here, there = Secret(key, ours.host("here")), Secret(key, ours.host("there"))
    colleague = identity(Secret(bytes(32), ours.host("colleague")))

    def pump(source: ssl.SSLSocket, sink: ssl.SSLSocket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
        for each in (source, sink):
            with contextlib.suppress(OSError):
                socket.socket.shutdown(each, socket.SHUT_RDWR)

    with door(LOOPBACK, here) as address:

        def stand_in_between(sock: socket.socket) -> None:
            with (
                colleague.accepts.wrap_socket(sock, server_side=True) as near,
                socket.create_connection((address.host, address.port), 20.0) as beyond,
                colleague.dials.wrap_socket(beyond) as far,
                ThreadPoolExecutor(1) as pool,
            ):
                back = pool.submit(pump, far, near)
                pump(near, far)
                back.result()

        with (
            server(stand_in_between) as between,
            pytest.raises(HandshakeRefused, match="secret"),
        ):
            dial_peer(between, there, b"good", deadline=soon())
        with dial_peer(address, there, b"good", deadline=soon()) as good:
            send_frame(good, [b"served"], deadline=soon())
            assert recv_frame(good, deadline=soon()) == [b"served"]
