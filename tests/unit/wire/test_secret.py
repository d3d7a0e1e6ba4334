"""The secret does not show itself, and its file is checked (W-2)."""

from __future__ import annotations

import copy
import errno
import os
import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from danaus.core.errors import ConfigError
from danaus.wire.secret import SECRET_BYTES, Secret

KEY = bytes(range(SECRET_BYTES))


def test_it_travels_by_file(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    secret = Secret.create(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert Secret.load(path) == secret
    assert Secret.generate() != secret
    with pytest.raises(ConfigError, match="exists"):
        Secret.create(path)


def test_whoever_comes_first_makes_it_and_all_hold_the_same(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    with ThreadPoolExecutor() as threads:
        secrets = list(threads.map(Secret.ensure, [path] * 8))
    assert set(secrets) == {Secret.load(path)}
    assert list(tmp_path.iterdir()) == [path]
    path.chmod(0o640)
    with pytest.raises(ConfigError, match="chmod 600"):
        Secret.ensure(path)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o777])
def test_a_file_that_others_can_read_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "secret"
    Secret.create(path)
    path.chmod(mode)
    with pytest.raises(ConfigError, match="chmod 600"):
        Secret.load(path)


def test_what_is_no_plain_file_is_refused(tmp_path: Path) -> None:
    Secret.create(tmp_path / "secret")
    (tmp_path / "link").symlink_to(tmp_path / "secret")
    os.mkfifo(tmp_path / "fifo", 0o600)
    (tmp_path / "folder").mkdir(mode=0o700)
    for name in ("link", "fifo", "folder", "missing"):
        with pytest.raises(ConfigError, match=name):
            Secret.load(tmp_path / name)


@pytest.mark.parametrize("text", ["", "ab", "zz" * 32, "ab" * 31, "ab" * 33, "\xff" * 64])
def test_what_is_no_secret_is_refused_and_not_repeated(tmp_path: Path, text: str) -> None:
    path = tmp_path / "secret"
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(ConfigError) as refused:
        Secret.load(path)
    assert not text or text not in str(refused.value)


def test_half_a_secret_is_not_left_on_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(os, "fsync", refuse)
        with pytest.raises(ConfigError, match="cannot be written: No space"):
            Secret.ensure(tmp_path / "secret")
    assert list(tmp_path.iterdir()) == []
    assert Secret.ensure(tmp_path / "secret") == Secret.load(tmp_path / "secret")


def test_it_does_not_show_itself() -> None:
    secret = Secret(KEY)
    for shown in (repr(secret), str(secret), f"{secret}", f"{[secret]}"):
        assert shown.strip("[]") == "Secret(hidden)"
    with pytest.raises(TypeError):
        pickle.dumps(secret)
    with pytest.raises(TypeError):
        vars(secret)
    assert copy.deepcopy(secret) is secret
    with pytest.raises(ConfigError) as refused:
        Secret(KEY + b"more")
    assert KEY.hex() not in str(refused.value)


def test_each_purpose_has_a_key_of_its_own() -> None:
    secret = Secret(KEY)
    assert secret.mac(b"a", b"message") != secret.mac(b"b", b"message")
    assert secret.mac(b"a", b"message") == Secret(KEY).mac(b"a", b"message")
    assert hash(secret) == hash(Secret(KEY))
    assert secret != KEY
