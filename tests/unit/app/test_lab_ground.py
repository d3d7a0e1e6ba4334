"""What a lab needs of a machine is said in one sentence; what it leaves in files is read back."""

from __future__ import annotations

import pytest

from danaus.app import lab_tools
from danaus.app.lab import Lab
from danaus.app.lab_folder import LabFolder, LabState, labs_there
from danaus.app.lab_init import Known
from danaus.app.lab_node import Node, listening_ports
from danaus.app.lab_plan import LabPlan, Link
from danaus.app.lab_status import HostStatus, LabStatus, agent_words, relay_problems
from danaus.core.errors import ConfigError, DependencyMissing

ALL = "CapEff:\t000001ffffffffff\n"


def test_who_is_not_root_is_told_so(monkeypatch):
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(ConfigError, match="needs root; run it as root, or with sudo"):
        lab_tools.check_ground()
    assert "needs root" in lab_tools.missing()


def test_a_root_that_may_nothing_is_told_what_it_lacks():
    assert lab_tools.lacking(f"Name:\tx\n{ALL}") == []
    assert lab_tools.lacking("CapEff:\t00000000a80425fb\n") == ["CAP_NET_ADMIN", "CAP_SYS_ADMIN"]


def test_a_missing_program_is_named_with_the_line_that_installs_it(monkeypatch):
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr(lab_tools, "lacking", lambda status: [])
    monkeypatch.setattr(lab_tools, "place_of", lambda name: "" if name == "nft" else name)
    with pytest.raises(DependencyMissing, match=r"nft is not installed.*apt install nftables"):
        lab_tools.check_ground()


@pytest.mark.parametrize("name", ["", ".", "..", "../mine", "a/b", "/mine", "A", "a b"])
def test_what_is_no_lab_is_never_taken_down(tmp_path, name):
    mine = tmp_path / "mine" / "thing"
    mine.mkdir(parents=True)
    (tmp_path / "labs").mkdir()
    with pytest.raises(ConfigError, match="a lab cannot be called"):
        Lab(name, labs=tmp_path / "labs").down()
    assert mine.exists()


def test_only_labs_are_found_among_labs(tmp_path):
    for name in ("a", "Not one", ".hidden"):
        (tmp_path / name).mkdir()
    assert labs_there(tmp_path) == ["a"]
    assert labs_there(tmp_path / "none") == []


def test_the_state_comes_back_as_it_was_written(tmp_path):
    plan = LabPlan("a", cuts=(("host1", "host2"),), links={"host1": Link(loss=0.5)})
    state = LabState(plan, ("sleep", "{port}"), is_complete=True, crashed=("host3",))
    folder = LabFolder("a", tmp_path)
    folder.path.mkdir()
    assert folder.read() is None
    folder.write(state)
    assert folder.read() == state


def test_a_damaged_state_is_an_error_that_says_what_to_do(tmp_path):
    folder = LabFolder("a", tmp_path)
    folder.path.mkdir()
    (folder.path / "state.json").write_text("{")
    with pytest.raises(ConfigError, match="danaus lab down --name a"):
        folder.read()


def test_ports_that_are_listened_at(tmp_path):
    table = tmp_path / "tcp"
    table.write_text(
        "  sl  local_address rem_address   st\n"
        "   0: 0B0112C6:1C20 00000000:0000 0A 00000000:00000000\n"
        "   1: 0B0112C6:0016 0101A8C0:D431 01 00000000:00000000\n"
    )
    assert listening_ports(table) == {7200}
    assert listening_ports(tmp_path / "none") == set()


@pytest.mark.parametrize("text", ["", "x y z", "1 1 another-boot"])
def test_a_pid_that_is_not_this_node_s_is_nobody(tmp_path, text):
    (tmp_path / "pid").write_text(text)
    assert Node(tmp_path).pid is None


def test_what_became_of_processes_is_said():
    assert agent_words({}) == "up, no agent"
    assert agent_words({"agent": Known([], 3)}) == "up"
    assert agent_words({"agent": Known([], 3, "SIGKILL")}) == "up, its agent ended: SIGKILL"
    running = {"r1": Known([], 3, "SIGKILL"), "r2": Known([], 4), "old": Known([], 5, "SIGKILL")}
    ended, missing = relay_problems(("r1", "r2", "r3"), running)
    assert ended.startswith("r1 ended by SIGKILL: nothing passes")
    assert missing.startswith("r3 was never started")


def test_a_person_is_told_what_is_cut_slow_and_down():
    plan = LabPlan("a", num_hosts=2, cuts=(("host1", "host2"),), links={"host2": Link(loss=0.5)})
    hosts = (HostStatus("host1", ("x",), True, "up"), HostStatus("host2", ("y",), False, "up"))
    counts = {"cut host1 host2": 7, "lost to host2": 3}
    text = "\n".join(LabStatus(plan, hosts, ("bad",), counts, "s").lines())
    for words in (
        "host1 does not reach host2 (7 frames dropped)", "lost to host2: 3 frames", "problem  bad",
        "host2    y  down: danaus lab start brings it back  link: 50 % lost",
        "--hosts tcp:198.18.1.11:7200,tcp:198.18.1.12:7200 --secret s",
    ):  # fmt: skip
        assert words in text
