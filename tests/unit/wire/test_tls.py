"""Who a job is in TLS follows from its secret alone, or from the user's own files (W-2)."""

from __future__ import annotations

import os
import socket
import ssl
import threading
from pathlib import Path

import pytest

from danaus.core.errors import ConfigError
from danaus.wire.secret import Authority, Secret
from danaus.wire.sockets import Endpoint, is_local
from danaus.wire.tls import _derived, identity

KEY = bytes(range(32))


def test_all_who_hold_the_secret_are_one() -> None:
    one = identity(Secret(KEY))
    identity.cache_clear()
    other = identity(Secret(KEY))
    assert one is not other
    assert one.certificate == other.certificate
    assert identity(Secret(KEY)) is other
    assert identity(Secret(KEY[::-1])).certificate != one.certificate


def test_both_sides_want_tls_1_3_and_a_certificate() -> None:
    found = identity(Secret(KEY))
    for context in (found.dials, found.accepts):
        assert context.minimum_version == context.maximum_version == ssl.TLSVersion.TLSv1_3
        assert context.verify_mode == ssl.CERT_REQUIRED
    assert found.accepts.num_tickets == 0


def test_no_key_touches_a_disk_and_no_descriptor_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    before = os.listdir("/proc/self/fd")
    identity.cache_clear()
    identity(Secret(KEY))
    assert list(tmp_path.iterdir()) == []
    assert len(os.listdir("/proc/self/fd")) == len(before)


def test_a_chain_that_is_longer_than_a_pipe_is_read_or_refused_all_the_same(tmp_path: Path) -> None:
    long = b"No certificate, but words before it, as openssl writes them.\n" * 4000
    certificate, key, _ = _derived(Secret(KEY))
    mine = files(tmp_path)
    (tmp_path / "key").touch(0o600)
    (tmp_path / "key").write_bytes(key)
    (tmp_path / "authority").write_bytes(certificate)
    (tmp_path / "certificate").write_bytes(long + certificate)
    assert identity(Secret(KEY, mine)).certificate == identity(Secret(KEY)).certificate
    (tmp_path / "certificate").write_bytes(
        certificate.replace(b"\n", b"\n****", 1) + long
    )  # of which nobody reads the end
    with pytest.raises(ConfigError, match="cannot be used"):
        identity(Secret(KEY[::-1], mine))
    assert not [each for each in threading.enumerate() if "pour" in each.name]


def files(folder: Path) -> Authority:
    return Authority(*(str(folder / name) for name in ("certificate", "key", "authority")))


def test_an_authority_goes_where_the_secret_goes(tmp_path: Path) -> None:
    mine = files(tmp_path)
    secret = Secret.create(tmp_path / "secret", mine)
    loaded = Secret.load(tmp_path / "secret")
    assert loaded == secret
    assert loaded.authority == mine
    (tmp_path / "bare").touch(0o600)
    (tmp_path / "bare").write_text((tmp_path / "secret").read_text().splitlines()[0])
    assert Secret.load(tmp_path / "bare") != secret


@pytest.mark.parametrize(
    "lines",
    [
        "certificate /a",
        "certificate /a\nkey /b\nauthority /c\nmore /d",
        "certificate /a\nkey /b\nkey /c\nauthority /d",
        "certificate /a\nkey /b\nauthority",
        "certificate a\nkey /b\nauthority /c",
    ],
)
def test_half_an_authority_is_refused(tmp_path: Path, lines: str) -> None:
    path = tmp_path / "secret"
    Secret.create(path)
    path.write_text(f"{path.read_text()}{lines}\n")
    with pytest.raises(ConfigError):
        Secret.load(path)


def test_files_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    mine = files(tmp_path)
    with pytest.raises(ConfigError, match=mine.certificate):
        identity(Secret(KEY, mine))
    for name in ("certificate", "authority"):
        (tmp_path / name).write_text("none")
    (tmp_path / "key").touch(0o640)
    with pytest.raises(ConfigError, match="chmod 600"):
        identity(Secret(KEY, mine))
    (tmp_path / "key").chmod(0o600)
    with pytest.raises(ConfigError, match="PEM"):
        identity(Secret(KEY, mine))


@pytest.mark.parametrize(
    ("host", "local"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("0.0.0.0", False),
        ("192.0.2.1", False),
        ("::ffff:192.0.2.1", False),
        ("fe80::1%2", False),
    ],
)
def test_what_is_this_machine(host: str, local: bool) -> None:
    if ":" in host:
        assert is_local(Endpoint(socket.AF_INET6, (host, 1, 0, 0))) is local
    else:
        assert is_local(Endpoint(socket.AF_INET, (host, 1))) is local
    assert is_local(Endpoint(socket.AF_UNIX, "/a"))
