"""Who a process is in TLS: the job's authority, or the user's own (W-2).

Owns certificates and contexts; streams are ``stream``'s, and when TLS is spoken is ``opening``'s.

The job's authority follows from the job's secret, so that nothing but the secret has to travel:
an Ed25519 key derived from it signs its own certificate, all of whose fields are fixed.  Every
process of the job derives the same, shows it, and takes nothing else.  The secret file may name
the user's own authority instead (``secret.Authority``).

Invariants:
    TLS 1.3 only, and both ends show a certificate and require one.
    No key is ever written to a disk.
    The secret is proven inside TLS as it is without, over both ends' certificates: one that a
    user's authority has signed for somebody else does not let them stand in between.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import errno
import functools
import os
import ssl
import threading
from collections.abc import Iterator
from dataclasses import dataclass

from danaus.core.errors import ConfigError
from danaus.core.proc_root import descriptor_path
from danaus.wire.secret import Authority, Secret, read_private

_KEY_PURPOSE = b"danaus tls key 1"
_NAME = "danaus job"


@dataclass(frozen=True)
class Identity:
    """One end of any number of connections.

    Args:
        dials: The context for connections that this process opens.
        accepts: The context for connections that it accepts.
        certificate: What it shows, in DER.
    """

    dials: ssl.SSLContext
    accepts: ssl.SSLContext
    certificate: bytes


@functools.lru_cache(maxsize=8)
def identity(secret: Secret) -> Identity:
    """Return who the holders of ``secret`` are in TLS; made once per process.

    Raises:
        ConfigError: The user's own authority cannot be used.
    """
    certificate, key, trusted = (
        _derived(secret) if secret.authority is None else _read(secret.authority)
    )
    try:
        dials = _context(ssl.PROTOCOL_TLS_CLIENT, (certificate, key), trusted)
        accepts = _context(ssl.PROTOCOL_TLS_SERVER, (certificate, key), trusted)
        shown = ssl.PEM_cert_to_DER_cert(_first(certificate))
    except (ssl.SSLError, ValueError) as error:
        raise ConfigError(
            f"the TLS authority that the secret names cannot be used: {error}",
            "a certificate, its key without a passphrase, and its authority, all in PEM",
        ) from error
    accepts.num_tickets = 0  # every connection proves itself anew
    return Identity(dials, accepts, shown)


@functools.lru_cache(maxsize=8)
def page_context(secret: Secret) -> ssl.SSLContext:
    """Return what a page for people is served with: it shows who it is, and asks nobody.

    Whoever reads proves itself inside, by a token; a browser has no certificate of the job's.

    Raises:
        ConfigError: The user's own authority cannot be used.
    """
    identity(secret)  # says what is wrong with files that cannot be used
    certificate, key, _ = _derived(secret) if secret.authority is None else _read(secret.authority)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_3
    _show(context, certificate, key)
    return context


def _context(kind: int, own: tuple[bytes, bytes], trusted: bytes) -> ssl.SSLContext:
    context = ssl.SSLContext(kind)
    context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False  # it is the job that is proven, wherever its processes are
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=trusted.decode("ascii"))
    _show(context, *own)
    return context


def _show(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    with _as_file(certificate) as shown, _as_file(key) as private:
        try:
            context.load_cert_chain(shown, private)
        except OSError as error:
            if error.errno != errno.ESPIPE:
                raise
            # OpenSSL from 3.5 on goes back to the beginning of what it could not read.
            raise ssl.SSLError(errno.EBADMSG, "damaged PEM") from error


@contextlib.contextmanager
def _as_file(data: bytes) -> Iterator[str]:
    """Lend a path under which OpenSSL reads ``data``, once: a pipe, so never a disk."""
    read, write = os.pipe()
    writer = threading.Thread(target=_pour, args=(data, write), daemon=True)
    writer.start()  # a pipe may hold less than a long chain of certificates
    try:
        yield descriptor_path(read)
    finally:
        os.close(read)  # ends the writer, whatever has not been read
        writer.join()


def _pour(data: bytes, write: int) -> None:
    with open(write, "wb", buffering=0) as pipe, contextlib.suppress(BrokenPipeError):
        rest = memoryview(data)
        while rest:
            rest = rest[pipe.write(rest) :]


def _first(chain: bytes) -> str:
    """Return the first certificate of a chain in PEM: the one that is shown as one's own."""
    text = chain.decode("ascii")
    start, end = text.find(ssl.PEM_HEADER), text.find(ssl.PEM_FOOTER)
    if start < 0 or end < start:
        raise ValueError("it holds no certificate")
    return text[start : end + len(ssl.PEM_FOOTER)]


def _derived(secret: Secret) -> tuple[bytes, bytes, bytes]:
    """Return certificate, key and authority that follow from the secret alone, in PEM."""
    # Not needed, and a tenth of a second, where no connection leaves the machine.
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
    from cryptography.x509.oid import NameOID

    key = Ed25519PrivateKey.from_private_bytes(secret.mac(_KEY_PURPOSE, b""))
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, _NAME)])
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), 1)
        # No clock of a job's machines is relied on: who holds the secret is what counts.
        .not_valid_before(dt.datetime(2000, 1, 1))  # noqa: DTZ001 (UTC by definition)
        .not_valid_after(dt.datetime(9999, 12, 31))  # noqa: DTZ001
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, None)
        .public_bytes(Encoding.PEM)
    )
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return certificate, private, certificate


def _read(authority: Authority) -> tuple[bytes, bytes, bytes]:
    """Return certificate, key and authority of the user's own, in PEM."""
    return (
        _file("TLS certificate", authority.certificate),
        read_private(authority.key, f"TLS key {authority.key}"),
        _file("TLS authority", authority.authority),
    )


def _file(what: str, path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise ConfigError(f"{what} {path}", f"cannot be read: {error.strerror}") from error
