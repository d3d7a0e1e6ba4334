"""One contract for everything that a lease can lie on: files, a real etcd, Kubernetes in small."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from danaus.core.errors import ConfigError
from danaus.quorum.lease_events import LeaseRecord
from danaus.quorum.lease_file import KEPT, FileLeaseStore
from danaus.quorum.lease_store import LeasePlace, LeaseStore

from .lease_servers import NO_ETCD, TOKEN, SmallCluster, etcd, small_cluster

Open = Callable[[], LeaseStore]


@pytest.fixture(scope="module", autouse=True)
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with etcd(tmp_path_factory.mktemp("etcd")) as url:
        yield url


@pytest.fixture
def etcd_url(server: str) -> str:
    if not server:
        pytest.skip(NO_ETCD)
    return server


@pytest.fixture
def cluster() -> Iterator[SmallCluster]:
    with small_cluster() as server:
        yield server


@pytest.fixture(params=["file", "etcd", "kubernetes"])
def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    """Return what opens one more view of the same, fresh lease."""
    if request.param == "file":
        place = LeasePlace()
    elif request.param == "etcd":
        url = request.getfixturevalue("etcd_url")
        place = LeasePlace(f"etcd:{url}/runs/{tmp_path.name}")
    else:
        place = LeasePlace(
            f"kubernetes:{request.getfixturevalue('cluster').url}/training/run-one",
            token_file=token_file(tmp_path),
        )
    return lambda: place.open(tmp_path, limit_s=5.0)


def token_file(folder: Path) -> Path:
    path = folder / "token"
    path.write_text(TOKEN + "\n")
    return path


def record(holder: str, number: int = 1, term: int = 1) -> LeaseRecord:
    return LeaseRecord(holder, f"tcp:{holder}:1", term, number, 5.0, "disk", "process")


def run(work):
    return asyncio.run(work)


def test_what_one_writes_another_reads(open_store):
    async def story() -> None:
        a, b = open_store(), open_store()
        written = await a.swap(record("a"), (await a.read()).version)
        assert written is not None
        assert written.record == record("a")
        assert await b.read() == written == await a.read()

    run(story())


def test_a_lease_that_nobody_held_is_empty(open_store):
    entry = run(open_store().read())
    assert entry.record is None


def test_who_knows_an_older_version_is_refused(open_store):
    async def story() -> None:
        a, b = open_store(), open_store()
        first = await b.read()
        assert await a.swap(record("a"), first.version) is not None
        assert await b.swap(record("b"), first.version) is None
        second = await b.read()
        assert second.record == record("a")
        assert await b.swap(record("b", 2), second.version) is not None
        assert await a.swap(record("a", 2), second.version) is None

    run(story())


def test_versions_do_not_come_again(open_store):
    async def story() -> None:
        store, seen = open_store(), set()
        entry = await store.read()
        for number in range(5):
            seen.add(entry.version)
            swapped = await store.swap(record("a", number % 2), entry.version)
            assert swapped is not None
            assert swapped.version not in seen
            entry = swapped

    run(story())


def test_of_many_at_once_one_wins(open_store):
    """Each from a thread and a loop of its own, as candidates are."""
    first = run(open_store().read()).version

    def attempt(name: str) -> str | None:
        return name if run(open_store().swap(record(name), first)) else None

    for _ in range(3):
        with ThreadPoolExecutor(6) as threads:
            winners = [name for name in threads.map(attempt, "abcdef") if name]
        assert len(winners) == 1
        entry = run(open_store().read())
        assert entry.record is not None
        assert entry.record.holder == winners[0]
        first = entry.version


# -- files alone ------------------------------------------------------------------------------


def test_old_versions_are_cleared_away(tmp_path):
    async def story() -> None:
        store = FileLeaseStore(tmp_path)
        version = "0"
        for number in range(KEPT + 10):
            entry = await store.swap(record("a", number), version)
            assert entry is not None
            version = entry.version

    run(story())
    assert len(list(tmp_path.glob("*.json"))) == KEPT
    assert not list(tmp_path.glob(".draft*"))


def test_who_was_stopped_until_its_version_was_cleared_away_is_refused(tmp_path):
    store = FileLeaseStore(tmp_path)
    for number in range(KEPT + 10):
        assert run(store.swap(record("a", number), str(number))) is not None
    assert run(store.swap(record("b"), "3")) is None
    entry = run(store.read())
    assert entry.record == record("a", KEPT + 9)


def test_a_folder_that_cannot_be_written_is_said(tmp_path):
    (tmp_path / "lease").write_text("a file, where the folder should be")
    store = FileLeaseStore(tmp_path / "lease")
    with pytest.raises(OSError, match="lease"):
        run(store.swap(record("a"), "0"))


def test_what_the_dead_left_half_written_is_never_read(tmp_path):
    store = FileLeaseStore(tmp_path)
    assert run(store.swap(record("a"), "0")) is not None
    draft = tmp_path / ".draft-of-a-dead-one"
    draft.write_text('{"holder":"b')
    os.utime(draft, (1.0, 1.0))
    entry = run(store.read())
    assert entry.record == record("a")
    assert run(store.swap(record("a", 2), entry.version)) is not None
    assert not draft.exists()


# -- services on the web ----------------------------------------------------------------------


def test_a_service_that_is_away_is_an_error_and_another_server_is_asked(etcd_url, tmp_path):
    away = LeasePlace("etcd:http://127.0.0.1:1/key").open(tmp_path, limit_s=1.0)
    with pytest.raises(OSError, match=r"http://127\.0\.0\.1:1: "):
        run(away.read())
    one_is_away = LeasePlace(f"etcd:http://127.0.0.1:1,{etcd_url}/other")
    assert run(one_is_away.open(tmp_path, limit_s=1.0).read()).record is None


def test_what_the_cluster_refuses_is_an_error_in_its_words(cluster, tmp_path):
    place = LeasePlace(f"kubernetes:{cluster.url}/training/run-one")
    with pytest.raises(OSError, match="401: Unauthorized"):
        run(place.open(tmp_path, limit_s=1.0).read())


def test_people_see_the_holder_in_the_cluster(cluster, tmp_path):
    place = LeasePlace(f"kubernetes:{cluster.url}/ns/run-one", token_file=token_file(tmp_path))
    store = place.open(tmp_path, limit_s=1.0)
    assert run(store.swap(record("a", term=3), "")) is not None
    (known,) = cluster.objects.values()
    assert known["spec"]["holderIdentity"] == "a"
    assert known["spec"]["leaseTransitions"] == 3
    assert known["spec"]["leaseDurationSeconds"] == 5


@pytest.mark.parametrize("spec", ["zookeeper:x", "etcd:host:2379", "file:relative", "kubernetes:a"])
def test_what_is_no_lease_is_said_with_what_is(spec, tmp_path):
    with pytest.raises(ConfigError, match="etcd:http://HOST:2379/KEY"):
        LeasePlace(spec).open(tmp_path, limit_s=1.0)
