"""The job's secret: what every process of a job holds and nobody else does.

Owns making, keeping and reading it, and what is computed from it.  It travels by a 0600 file, never
by argument, environment, log or pickle (W-2).

The file's first line is the secret.  Three more may name the user's own authority for TLS, which
then goes wherever the secret goes::

    certificate /absolute/path.pem
    key /absolute/path.pem
    authority /absolute/path.pem
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import stat
from dataclasses import astuple, dataclass
from typing import NoReturn

from danaus.core import disk_sync
from danaus.core.errors import ConfigError

SECRET_BYTES = 32
_TEXT_LIMIT_BYTES = 16 * 1024
_AUTHORITY_WORDS = ("certificate", "key", "authority")


@dataclass(frozen=True, slots=True)
class Authority:
    """The user's own authority for TLS, instead of the one that follows from the secret.

    Args:
        certificate: Path of what this job's processes show, with intermediates if there are any.
        key: Path of its key, without a passphrase; readable by its owner alone.
        authority: Path of the certificates that have signed what peers show.

    Raises:
        ConfigError: A path is relative: processes of one job run in different folders.
    """

    certificate: str
    key: str
    authority: str

    def __post_init__(self) -> None:
        for path in astuple(self):
            if not path.startswith("/") or "\n" in path:
                raise ConfigError(f"TLS file {path!r}", "must be an absolute path")


class Secret:
    """32 random bytes that do not show themselves.

    Attributes:
        authority: Who is trusted in TLS besides: the user's own, or None for the job's.
    """

    __slots__ = ("_key", "authority")

    def __init__(self, key: bytes, authority: Authority | None = None) -> None:
        if len(key) != SECRET_BYTES:
            raise ConfigError(
                f"a secret of {len(key)} bytes", f"{SECRET_BYTES} bytes", "let danaus create it"
            )
        self._key = bytes(key)
        self.authority = authority

    @classmethod
    def generate(cls, authority: Authority | None = None) -> Secret:
        """Return a fresh secret that stands in no file."""
        return cls(secrets.token_bytes(SECRET_BYTES), authority)

    @classmethod
    def create(cls, path: str | os.PathLike[str], authority: Authority | None = None) -> Secret:
        """Return a fresh secret, written to a new file that only its owner can read.

        Raises:
            ConfigError: The file exists or cannot be written.
        """
        secret = cls.generate(authority)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            fd = os.open(path, flags, 0o600)
        except OSError as error:
            raise ConfigError(
                f"secret file {os.fspath(path)}", f"cannot be created: {error.strerror}"
            ) from error
        try:
            with os.fdopen(fd, "wb") as file:
                file.write(secret._text())
                file.flush()
                disk_sync.sync(fd)
        except OSError as error:
            os.unlink(path)  # half a secret would be refused for ever
            raise ConfigError(
                f"secret file {os.fspath(path)}", f"cannot be written: {error.strerror}"
            ) from error
        return secret

    @classmethod
    def ensure(cls, path: str | os.PathLike[str]) -> Secret:
        """Return the secret that a file holds, made first where there is none.

        Of several processes that find none, one makes it and all return the same.

        Raises:
            ConfigError: As ``create`` and ``load`` raise it.
        """
        if not os.path.lexists(path):
            draft = f"{os.fspath(path)}.{secrets.token_hex(8)}"
            cls.create(draft)
            try:
                os.link(draft, path)
            except FileExistsError:
                pass  # somebody else was first
            finally:
                os.unlink(draft)
        return cls.load(path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Secret:
        """Return the secret that a file holds.

        Raises:
            ConfigError: It is missing, is not a plain file, belongs to another user, can be read
                by others, or holds no secret.
        """
        name = f"secret file {os.fspath(path)}"
        return cls._from_text(read_private(path, name), name)

    def mac(self, purpose: bytes, message: bytes) -> bytes:
        """Return HMAC-SHA256 of ``message`` under a key that serves ``purpose`` only."""
        key = hmac.digest(self._key, purpose, hashlib.sha256)
        return hmac.digest(key, message, hashlib.sha256)

    def _text(self) -> bytes:
        lines = [self._key.hex()]
        if self.authority is not None:
            lines += [f"{word} {getattr(self.authority, word)}" for word in _AUTHORITY_WORDS]
        return "".join(f"{line}\n" for line in lines).encode()

    @classmethod
    def _from_text(cls, text: bytes, name: str) -> Secret:
        first, *others = text.decode(errors="replace").splitlines() or [""]
        try:
            key = bytes.fromhex(first)
        except ValueError:
            key = b""
        if len(key) != SECRET_BYTES:
            # The text itself stays out of the message: it may be a damaged secret.
            raise ConfigError(name, f"must hold {2 * SECRET_BYTES} hexadecimal digits")
        words = dict(line.split(" ", 1) for line in others if " " in line)
        if others and (len(words) != len(others) or set(words) != set(_AUTHORITY_WORDS)):
            raise ConfigError(
                name,
                "must name certificate, key and authority behind the secret, a line each, or none",
            )
        return cls(key, Authority(**words) if words else None)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return self.authority == other.authority and hmac.compare_digest(self._key, other._key)

    def __hash__(self) -> int:
        return hash(self.mac(b"danaus hash", b""))

    def __repr__(self) -> str:
        return "Secret(hidden)"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Secret is not pickled: pass its file")

    def __copy__(self) -> Secret:
        return self

    def __deepcopy__(self, memo: object) -> Secret:
        return self


def read_private(path: str | os.PathLike[str], name: str) -> bytes:
    """Return what a file holds that nobody but its owner can read.

    Args:
        path: The file.
        name: What to call it in errors.

    Raises:
        ConfigError: It is missing, is not a plain file, belongs to another user, or can be read
            by others.
    """
    try:
        # O_NONBLOCK: a fifo in the file's place must not block us.
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        raise ConfigError(name, f"cannot be opened: {error.strerror}") from error
    try:
        facts = os.fstat(fd)
        if not stat.S_ISREG(facts.st_mode):
            raise ConfigError(name, "must be a plain file")
        if facts.st_uid != os.geteuid():
            raise ConfigError(name, f"belongs to user {facts.st_uid}, not to {os.geteuid()}")
        if facts.st_mode & 0o077:
            mode = stat.S_IMODE(facts.st_mode)
            raise ConfigError(name, f"has mode {mode:04o}", f"chmod 600 {os.fspath(path)}")
        return os.read(fd, _TEXT_LIMIT_BYTES)
    finally:
        os.close(fd)
