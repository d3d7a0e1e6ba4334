"""Where a manager's process stands, and what it says is missing."""

import stat

import pytest

from danaus.core.errors import ConfigError
from danaus.ft.managed_place import check_options, place_of, read_address


def test_a_folder_is_all_that_one_machine_needs(tmp_path):
    place = place_of(folder=tmp_path / "run", replica_id="a:1/x")
    assert place.quorum_address == f"unix:{tmp_path}/run/quorum.sock"
    assert stat.S_IMODE((tmp_path / "run" / "secret").stat().st_mode) == 0o600
    assert place.data_address.startswith(f"unix:{tmp_path}/run/a_1_x-0-")
    assert (place.rank, place.num_ranks) == (0, 1)


def test_incarnations_grow_and_random_names_differ(tmp_path):
    first, second = (place_of(folder=tmp_path) for _ in range(2))
    assert first.replica_id != second.replica_id
    assert second.incarnation >= first.incarnation > 1_500_000_000_000


@pytest.mark.parametrize(
    "spelled", ["tcp:10.1.2.3:4500", "http://10.1.2.3:4500", "https://10.1.2.3:4500/",
                "10.1.2.3:4500"],
)  # fmt: skip
def test_a_lighthouse_elsewhere(spelled, tmp_path):
    assert str(read_address(spelled)) == "tcp:10.1.2.3:4500"
    options = {"lighthouse_addr": spelled, "secret_path": tmp_path / "s", "replica_id": "a"}
    assert place_of(**options).data_address == "tcp:0.0.0.0:0"
    place = place_of(**options, hostname="fd00::7", port=7, rank=1, world_size=2, incarnation=3)
    assert place.data_address == "tcp:[fd00::7]:7"
    assert (place.rank, place.num_ranks, place.incarnation) == (1, 2, 3)


def test_beside_a_socket_lies_the_secret():
    place = place_of(lighthouse_addr="unix:/r/quorum.sock")
    assert place.secret_path == "/r/secret"
    assert place_of(lighthouse_addr="http://127.0.0.1:1", secret_path="s").data_address == (
        "tcp:127.0.0.1:0"
    )
    several = place_of(lighthouse_addr="http://127.0.0.1:1,tcp:127.0.0.1:2", secret_path="s")
    assert several.quorum_address == "tcp:127.0.0.1:1,tcp:127.0.0.1:2"
    assert place_of(lighthouse_addr="tcp:[::1]:1", secret_path="s").data_address == "tcp:[::1]:0"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "no variable of the environment is read; pass lighthouse_addr="),
        ({"lighthouse_addr": "http://h:1"}, "no secret to show at http://h:1"),
        ({"folder": "x", "rank": 2, "world_size": 2}, "rank 2 of 2"),
        ({"world_size": 2, "rank": 0, "incarnation": 1}, "2 ranks without a replica_id"),
        ({"world_size": 2, "rank": 0, "replica_id": "a"}, "pass incarnation="),
    ],
)
def test_what_is_missing_is_asked_for(options, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=said):
        place_of(**options)


def test_options_that_are_none_are_refused():
    check_options({"timeout": 3, "init_sync": True, "store_port": 1})
    with pytest.raises(ConfigError, match="no option min_replicas"):
        check_options({"min_replicas": 3})
    with pytest.raises(ConfigError, match="over danaus' own connections"):
        check_options({"checkpoint_transport": None})
