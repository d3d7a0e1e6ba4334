"""Signals reach the process that was meant, and no other that has its pid by now."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from danaus.actor import procfs
from danaus.actor.pid_registry import PidRegistry
from danaus.app.campaign import Campaign
from danaus.app.chaos import FaultPlan, Fleet
from danaus.app.chaos_log import read_record
from danaus.app.chaos_record import replay
from danaus.app.run_folder import RunFolder
from danaus.app.settings import RunConfig
from danaus.core import journal
from danaus.core.errors import ConfigError
from danaus.testing.hosts import wait_for_state

FLEET = Fleet.of(range(2))


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


@pytest.mark.parametrize("kind", ["kill", "hang", "slow"])
def test_a_worker_that_is_not_on_this_machine_is_asked_to_strike_itself(folder, kind):
    with Campaign(folder, FaultPlan(), FLEET) as campaign:
        campaign.strike_now(f"{kind}:replica=1")
    (missed,) = told(folder, "fault_missed")
    assert missed["reason"] == "the run's controller has no door: it must be alive for this"


class Unharmed:
    """A network that lets nobody harm it."""

    def cut(self, host, peer, *, one_way):
        raise ConfigError("this lab was taken down")


def test_what_is_written_down_and_cannot_be_done_has_missed_and_not_struck(folder):
    with Campaign(folder, FaultPlan(), FLEET, network=Unharmed()) as campaign:
        campaign.strike_now("partition:host=0,peer=1")
        assert (campaign.striker.num_struck, campaign.striker.num_missed) == (0, 1)
        assert campaign.is_done
    assert not replay(read_record(campaign.record.path)).faults


def test_what_victims_do_to_themselves_is_heard_of(folder):
    plan = FaultPlan.parse("nan:at_step=3", "oom:at_step=4", "segv:at_step=5")
    with Campaign(folder, plan, FLEET) as campaign, journal.Journal(folder.journal_path) as victims:
        nan, oom, _ = campaign.take_planned()
        campaign.look()
        assert campaign.is_over
        assert (campaign.striker.num_struck, campaign.striker.num_open) == (0, 3)
        victims.record("fault_injected", fault=nan.id, text="a number is none")
        victims.record("fault_missed", fault=oom.id, reason="root is needed")
        campaign.look()
        striker = campaign.striker
        assert (striker.num_struck, striker.num_missed, striker.num_open) == (1, 1, 1)
        assert not campaign.is_done, "one waits for its step"
    kinds = [fault.kind for fault in replay(read_record(campaign.record.path)).faults]
    assert kinds == ["nan", "segv"], "who missed is not struck again"


def test_a_record_holds_every_line_once_its_disk_has_room_again(tmp_path):
    """The kernel's limit on a file's size is a full disk to whoever writes."""
    script = """
import resource, sys
from pathlib import Path
from danaus.app.chaos_log import RecordFile
from danaus.app.run_folder import RunFolder
lines = [f"line {n}" + chr(10) for n in range(4)]
record = RecordFile(RunFolder(Path(sys.argv[1])))
record.write(lines[0])
resource.setrlimit(resource.RLIMIT_FSIZE, (10, resource.RLIM_INFINITY))
record.write(lines[1])
record.write(lines[2])
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
record.write(lines[3])
record.close()
"""
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=True, timeout=60)
    assert read_record(tmp_path / "chaos" / "1.jsonl") == [f"line {n}" for n in range(4)]


FREEZER = Path("/sys/fs/cgroup/freezer/cgroup.procs")


@pytest.mark.skipif(not os.access(FREEZER, os.W_OK), reason="needs root and a freezer (cgroup v1)")
def test_a_process_can_be_frozen_again_once_it_has_thawed():
    script = """
from danaus.app.chaos_kernel import freeze
for _ in range(2):
    freeze(0.1, lambda: print("frozen", flush=True))
    for undoer in __import__("danaus.app.chaos_kernel", fromlist=["_"])._undoers:
        undoer.wait()
"""
    done = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True, timeout=60
    )
    assert done.stdout.split() == ["frozen", "frozen"]


def test_a_partition_without_a_lab_misses(folder):
    with Campaign(folder, FaultPlan(), FLEET) as campaign:
        campaign.strike_now("partition:host=0,peer=1")
    (missed,) = told(folder, "fault_missed")
    assert missed["reason"] == "partition needs a network that can be harmed: a lab"
