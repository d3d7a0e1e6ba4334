"""Signals reach the process that was meant, and no other that has its pid by now."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from danaus.actor import procfs
from danaus.actor.pid_registry import PidRegistry
from danaus.app.campaign import Campaign
from danaus.app.chaos import FaultPlan, Fleet
from danaus.app.run_folder import RunFolder
from danaus.app.settings import RunConfig
from danaus.core import journal
from danaus.testing.hosts import wait_for_state

FLEET = Fleet.of(2)


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "100"]) as process:
        yield process
        process.kill()


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    made = RunFolder.create(tmp_path / "run", RunConfig(run_dir=tmp_path / "run"))
    made.release()
    return made


def register(folder: RunFolder, process: subprocess.Popen[bytes], *, late_ticks: int = 0) -> None:
    """Make a process the worker of replica 1, as its host's agent does."""
    stat = procfs.read_stat(process.pid)
    assert stat is not None
    agent = folder.control / "agents" / "host1"
    agent.mkdir(parents=True)
    PidRegistry(agent).add("host1/replica-1/0#4", process.pid, stat.started + late_ticks)


def told(folder: RunFolder, event: str) -> list[dict[str, object]]:
    return [line for line in journal.read(folder.journal_path) if line["event"] == event]


def test_a_worker_is_hit_and_written_down(folder, sleeper):
    register(folder, sleeper)
    with Campaign(folder, FaultPlan(), FLEET) as campaign:
        campaign.strike_now("hang:replica=1")
        assert wait_for_state(sleeper.pid, "T")
        campaign.strike_now("kill:replica=1")
        assert sleeper.wait(10) == -9
        assert campaign.striker.num_struck == 2
    hang, kill = told(folder, "fault_injected")
    assert hang["text"] == "kill -STOP a worker of replica-1: it hangs"
    assert kill["text"] == "kill -9 a worker of replica-1"
    assert (kill["replica"], kill["incarnation"], kill["pid"]) == ("replica-1", 4, sleeper.pid)
    assert kill["spec"] == "kill:replica=1,rank=0,at_step=0"


def test_the_quorum_service_can_lose_its_disk_with_its_life(folder, sleeper):
    stat = procfs.read_stat(sleeper.pid)
    assert stat is not None
    folder.hold()
    folder.save_addresses(quorum_pid=sleeper.pid, quorum_started=stat.started)
    folder.release()
    folder.quorum.mkdir(exist_ok=True)
    (folder.quorum / "state.json").write_text("{}")
    with Campaign(folder, FaultPlan(), FLEET) as campaign:
        campaign.strike_now("kill_coordinator:where=disk")
    assert sleeper.wait(10) == -9
    assert not folder.quorum.exists()
    (struck,) = told(folder, "fault_injected")
    assert struck["text"] == "kill -9 the quorum service, and what it has saved is lost"


def test_a_pid_that_is_another_process_by_now_is_left_alone(folder, sleeper):
    register(folder, sleeper, late_ticks=1)
    with Campaign(folder, FaultPlan(), FLEET) as campaign:
        for spec in ("kill:replica=1", "kill_host:host=1", "kill_coordinator", "kill_controller"):
            campaign.strike_now(spec)
        assert (campaign.striker.num_struck, campaign.striker.num_missed) == (0, 4)
    assert sleeper.poll() is None
    assert len(told(folder, "fault_missed")) == 4
    assert not told(folder, "fault_injected")


def test_what_lasts_is_lifted_at_the_latest_when_the_campaign_ends(folder, sleeper):
    register(folder, sleeper)
    with Campaign(folder, FaultPlan(), FLEET) as campaign:
        campaign.strike_now("hang:replica=1,for=1h")
        assert wait_for_state(sleeper.pid, "T")
        assert not campaign.all_back
        campaign.striker.close()
        assert wait_for_state(sleeper.pid, "S")
    (lifted,) = told(folder, "fault_lifted")
    assert lifted["kind"] == "hang"


def test_a_controller_does_not_stop_itself_as_nobody_would_let_it_go_on(folder):
    folder.hold()
    with Campaign(folder, FaultPlan(), FLEET) as campaign:
        campaign.strike_now("hang:process=controller,for=1s")
    folder.release()
    (missed,) = told(folder, "fault_missed")
    assert missed["reason"].endswith("danaus chaos, from another terminal")


def test_a_partition_without_a_lab_misses(folder):
    with Campaign(folder, FaultPlan(), FLEET) as campaign:
        campaign.strike_now("partition:host=0,peer=1")
    (missed,) = told(folder, "fault_missed")
    assert missed["reason"] == "partition needs a network that can be harmed: a lab"
