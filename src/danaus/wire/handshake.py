"""Mutual proof that both ends of a connection hold the job's secret (W-2), as pure machines.

Three messages, one and a half round trips; the second and third carry the proofs::

    dialler  -> acceptor   "danausD1"  nonce_d  size  hello_d
    acceptor -> dialler    "danausA1"  nonce_a  size  hello_a  HMAC(key_a, transcript)
    dialler  -> acceptor   HMAC(key_d, transcript)

The transcript is both nonces and both hellos with their sizes, and what binds it to the connection
below: two ends that saw different certificates there come to different proofs.  Each role has a
key of its own, derived from the secret, so that a proof reflected to its maker proves nothing;
each side's fresh nonce makes a proof of an earlier connection worthless.

Invariants:
    Nothing of a hello is looked at before its sender's proof was checked: it is a count of bytes.
    What one side may make the other hold before a proof is bounded (``MAX_HELLO_BYTES``).

Source: the SIGMA/ISO 9798-4 three-pass mutual authentication with keyed hashes, plus the hellos.
"""

from __future__ import annotations

import enum
import hmac
import secrets
import struct

from danaus.core.errors import HandshakeRefused
from danaus.wire.secret import Secret

MAX_HELLO_BYTES = 16 * 1024
NONCE_BYTES = 32
PROOF_BYTES = 32
_DIALLER_MAGIC = b"danausD1"
_ACCEPTOR_MAGIC = b"danausA1"
_SIZE = struct.Struct(">I")
_GREETING_BYTES = len(_DIALLER_MAGIC) + NONCE_BYTES + _SIZE.size


class _Awaited(enum.Enum):
    GREETING = enum.auto()
    HELLO = enum.auto()
    PROOF = enum.auto()
    NOTHING = enum.auto()


class _Side:
    """What both roles share: reading greeting, hello and proof in turn."""

    _my_magic: bytes
    _peer_magic: bytes
    _my_purpose: bytes
    _peer_purpose: bytes

    def __init__(
        self,
        secret: Secret,
        hello: bytes = b"",
        *,
        peer: str = "peer",
        binding: bytes = b"",
        nonce: bytes | None = None,
    ) -> None:
        if len(hello) > MAX_HELLO_BYTES:
            raise ValueError(f"a hello of {len(hello)} bytes; {MAX_HELLO_BYTES} at most")
        self._secret = secret
        self._hello = bytes(hello)
        self._peer = peer
        self._binding = binding
        self._nonce = secrets.token_bytes(NONCE_BYTES) if nonce is None else nonce
        self._peer_nonce = b""
        self._unproven_hello = b""
        self._awaited = _Awaited.GREETING
        self._need = _GREETING_BYTES
        self._pending = bytearray()
        self._refused = False

    @property
    def done(self) -> bool:
        """Tell whether the peer has proven itself."""
        return self._awaited is _Awaited.NOTHING

    @property
    def need_bytes(self) -> int:
        """How many more bytes are certain to belong to the handshake (0 once done)."""
        return max(0, self._need - len(self._pending))

    @property
    def peer_hello(self) -> bytes:
        """What the peer said of itself; only after its proof."""
        if not self.done:
            raise ValueError("the peer has not proven itself yet")
        return self._unproven_hello

    def feed(self, data: bytes | bytearray | memoryview) -> bytes:
        """Take bytes from the peer, in any portions; return the bytes to send.

        Who reads from a connection takes ``need_bytes`` at most: what follows is not for here.

        Raises:
            HandshakeRefused: The peer does not speak this protocol or failed to prove itself.
                The machine is of no more use then.
        """
        if self._refused:
            raise HandshakeRefused(self._peer, "it was refused before")
        self._pending += data
        answer = b""
        try:
            self._check_magic()
            while not self.done and len(self._pending) >= self._need:
                taken = bytes(self._pending[: self._need])
                del self._pending[: self._need]
                answer += self._take(taken)
        except HandshakeRefused:
            self._refused = True
            self._pending = bytearray()
            raise
        return answer

    def _take(self, taken: bytes) -> bytes:
        if self._awaited is _Awaited.GREETING:
            self._peer_nonce = taken[len(self._peer_magic) : -_SIZE.size]
            (size,) = _SIZE.unpack(taken[-_SIZE.size :])
            if size > MAX_HELLO_BYTES:
                raise HandshakeRefused(self._peer, f"its hello claims {size} bytes")
            self._awaited, self._need = _Awaited.HELLO, size
            return b""
        if self._awaited is _Awaited.HELLO:
            self._unproven_hello = taken
            self._awaited, self._need = _Awaited.PROOF, PROOF_BYTES
            return self._after_hello()
        if not hmac.compare_digest(taken, self._proof(self._peer_purpose)):
            raise HandshakeRefused(self._peer, "it does not hold this job's secret")
        self._awaited, self._need = _Awaited.NOTHING, 0
        return self._after_proof()

    def _check_magic(self) -> None:
        """Refuse a stranger at its first wrong byte: it may never send enough for a greeting."""
        if self._awaited is _Awaited.GREETING:
            seen = self._pending[: len(self._peer_magic)]
            if not self._peer_magic.startswith(seen):
                raise HandshakeRefused(self._peer, "it does not speak this version's handshake")

    def _greeting(self) -> bytes:
        return self._my_magic + self._nonce + _SIZE.pack(len(self._hello)) + self._hello

    def _proof(self, purpose: bytes) -> bytes:
        raise NotImplementedError

    def _after_hello(self) -> bytes:
        return b""

    def _after_proof(self) -> bytes:
        return b""


def _transcript(nonces: tuple[bytes, bytes], hellos: tuple[bytes, bytes], binding: bytes) -> bytes:
    """Return what both proofs are of; the dialler's half of each pair comes first."""
    sizes = b"".join(_SIZE.pack(len(hello)) for hello in hellos)
    return b"".join((*nonces, sizes, *hellos, binding))


class Dialler(_Side):
    """The side that opened the connection; it speaks first (``start``) and is proven to second.

    Args:
        secret: The job's secret.
        hello: What to say of oneself, at most ``MAX_HELLO_BYTES``; sent in the clear.
        peer: Whom to name in errors.
        binding: What both ends know of the connection that the handshake runs over.
        nonce: 32 fresh random bytes; given by tests only.
    """

    _my_magic, _peer_magic = _DIALLER_MAGIC, _ACCEPTOR_MAGIC
    _my_purpose, _peer_purpose = b"danaus dialler 1", b"danaus acceptor 1"

    def start(self) -> bytes:
        """Return the first bytes to send."""
        return self._greeting()

    def _proof(self, purpose: bytes) -> bytes:
        return self._secret.mac(
            purpose,
            _transcript(
                (self._nonce, self._peer_nonce),
                (self._hello, self._unproven_hello),
                self._binding,
            ),
        )

    def _after_proof(self) -> bytes:
        return self._proof(self._my_purpose)


class Acceptor(_Side):
    """The side that was dialled.

    Args:
        secret: The job's secret.
        hello: What to say of oneself; a stranger can read it.
        peer: Whom to name in errors.
        binding: What both ends know of the connection that the handshake runs over.
        nonce: 32 fresh random bytes; given by tests only.
    """

    _my_magic, _peer_magic = _ACCEPTOR_MAGIC, _DIALLER_MAGIC
    _my_purpose, _peer_purpose = b"danaus acceptor 1", b"danaus dialler 1"

    def _proof(self, purpose: bytes) -> bytes:
        return self._secret.mac(
            purpose,
            _transcript(
                (self._peer_nonce, self._nonce),
                (self._unproven_hello, self._hello),
                self._binding,
            ),
        )

    def _after_hello(self) -> bytes:
        return self._greeting() + self._proof(self._my_purpose)
