"""A user's own authority for TLS, and who of it is no part of the job (W-2)."""

from __future__ import annotations

import contextlib
import datetime as dt
import socket
import ssl
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from tests.procs.wire.doors import Door, server, soon

from danaus.core.errors import HandshakeRefused
from danaus.wire.address import Address
from danaus.wire.blocking import dial_peer, recv_frame, send_frame
from danaus.wire.secret import Authority, Secret
from danaus.wire.tls import identity

LOOPBACK = Address.tcp("127.0.0.1", 0)

pytestmark = pytest.mark.usefixtures("far_loopback")


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
