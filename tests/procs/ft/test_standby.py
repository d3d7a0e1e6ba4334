"""Three replicas train while the service that leads is killed or stopped, and a standby leads."""

from __future__ import annotations

import signal
import subprocess
import threading
from pathlib import Path

import pytest
from tests.procs.ft.forked_run import LIMIT_S, Run, end, python
from tests.procs.ft.test_loop import begin, end_with_the_bits_of_a_plain_loop

from danaus.core.clock import Deadline
from danaus.core.journal import read
from danaus.testing.hosts import wait_for_state


class RunWithStandby(Run):
    """Two candidates for the service by a lease in the run's folder."""

    def __init__(self, folder: Path) -> None:
        self.addresses = (f"unix:{folder}/one", f"unix:{folder}/two")
        super().__init__(folder)

    def start_service(self) -> subprocess.Popen[bytes]:
        first = self.candidate(0)
        self.wait_for(0, "quorum_listening")
        self.standby = self.candidate(1, "--standby")
        self.wait_for(1, "lease_followed")
        return first

    def candidate(self, number: int, *more: str) -> subprocess.Popen[bytes]:
        return python(
            "-m", "danaus.quorum.service", f"--run={self.folder}", "--expected-replicas=3",
            f"--address={self.addresses[number]}", "--lease=file", "--lease-s=2",
            f"--journal={self.folder}/service-{number}.jsonl",
            f"--heartbeat-limit-s={self.heartbeat_limit_s}", *more,
        )  # fmt: skip

    def said_by(self, number: int, event: str) -> list[dict[str, object]]:
        return [
            line for line in read(self.folder / f"service-{number}.jsonl") if line["event"] == event
        ]

    def wait_for(self, number: int, event: str) -> None:
        deadline = Deadline.after(LIMIT_S)
        while not self.said_by(number, event):
            assert not deadline.passed, event
            threading.Event().wait(0.02)

    def close(self) -> None:
        super().close()
        end(self.standby)


@pytest.fixture
def run(tmp_path):
    started = RunWithStandby(tmp_path / "run")
    yield started
    started.service.send_signal(signal.SIGCONT)
    started.close()


@pytest.mark.timeout(120)
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_no_step_is_lost_and_who_comes_later_learns_from_the_others(run, how):
    begin(run)
    run.service.send_signal(how)
    if how == signal.SIGSTOP:
        assert wait_for_state(run.service.pid, "T")
    run.signal("b", signal.SIGKILL)
    run.wait_for(1, "lease_taken")
    (taken,) = run.said_by(1, "lease_taken")
    assert taken["term"] == 2
    announced = len(run.said_by(0, "quorum_announced"))
    run.service.send_signal(signal.SIGCONT)
    # Before the others go on: they are soon at their end.
    run.start("b", 1)
    run.open_gate()
    run.said("b", "learned")
    end_with_the_bits_of_a_plain_loop(run)
    if how == signal.SIGSTOP:
        run.wait_for(0, "lease_followed")
        assert len(run.said_by(0, "quorum_announced")) == announced, "it has said nothing since"
    (epoch,) = {line["epoch"] for line in run.said_by(1, "quorum_announced") if line["finished"]}
    assert str(epoch).startswith("2.")
