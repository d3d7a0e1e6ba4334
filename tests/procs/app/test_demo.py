"""``danaus demo`` on small runs: what is seen, what is left in the folder, how it ends."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest
from tests.procs.cli.terminal import TINY, Command, text, told

from danaus.app.events import SERVICE, Event, FaultKind
from danaus.app.lanes import lanes, service_lane
from danaus.app.run_record import RunRecord, read_run
from danaus.app.timeline import faults

DEMO = ("demo", *TINY, "--run-dir=d")
SLOWER = ("--step.num-microbatches=12", "--steps=60")
"""So that a person, or a test, can strike in between."""
FILES = (
    "config.toml",
    "journal.jsonl",
    "ledger/replica-0-0.jsonl",
    "ledger/replica-2-0.jsonl",
    "metrics/replica-1.jsonl",
    "report.html",
    "report.png",
    "undisturbed/config.toml",
    "undisturbed/ledger/replica-0-0.jsonl",
)


def suggested(demo: Command) -> int:
    """Wait for the invitation to strike; return the pid that it names."""
    return int(demo.wait_for(r"now try: kill -9 (\d+)")[1])


def states(record: RunRecord, replica: str) -> list[str]:
    return [span.state for span in lanes(record)[replica]]


@pytest.mark.timeout(180)
def test_a_demo_through_its_faults_and_one_by_hand(tmp_path: Path) -> None:
    text(tmp_path)
    with Command(tmp_path, *DEMO, *SLOWER) as demo:
        os.kill(suggested(demo), signal.SIGKILL)
        assert demo.wait(limit_s=90.0) == 0

    lines = demo.text.splitlines()
    assert lines[1] == "text   text.txt, 65,536 bytes of 1 file"
    assert lines[2].startswith("model  Llama, 26,784 parameters")
    same = r"SAME BITS sha256 [0-9a-f]{64} at step 60 after 5 faults, 0 restarts of the job"
    assert re.fullmatch(same, lines[-1])
    _check_live(demo.text)
    for name in FILES:
        assert (tmp_path / "d" / name).stat().st_size, name
    _check_record(read_run(tmp_path / "d"))
    _check_commands(tmp_path)


def _check_live(said: str) -> None:
    """Check that each fault, and what became of it, was told in this order."""
    order = (
        r"replica-0, replica-1 and replica-2 train \(quorum 1\.1\)",
        r"FAULT kill -9 a worker of replica-1\n",
        r"replica-1 is dead \(SIGKILL\)\n",
        r"replica-1 started again: pid \d+",
        r"replica-1 learned step \d+ from replica-0 and replica-2: 0\.3 MB in \d+ ms",
        r"replica-1 takes part again after step \d+",
        r"FAULT kill -STOP a worker of replica-2: it hangs",
        r"replica-2 hangs: no progress for 3\.\d s",
        r"replica-2 is dead \(SIGKILL, as it hung\)\n",
        r"replica-2 takes part again",
        r"FAULT kill -9 the quorum service",
        r"quorum service is dead \(SIGKILL\); training goes on without it",
        r"quorum service started again: pid \d+",
        r"now try: kill -9 \d+",
        r"replica-2 is dead \(SIGKILL\): a fault from outside",
        r"step 60/60",
        r"report d/report\.html",
    )
    assert "replica-0 and replica-2 go on without replica-1 (quorum 1.2)" in said
    place = 0
    for pattern in order:
        found = re.compile(pattern).search(said, place)
        assert found, f"{pattern!r} is not told after:\n{said[:place]}"
        place = found.end()


def _check_record(record: RunRecord) -> None:
    """Check the story that the run's own files tell."""
    found = faults(record)
    assert [(fault.kind, fault.target) for fault in found] == [
        (FaultKind.KILL, "replica-1"),
        (FaultKind.HANG, "replica-2"),
        (FaultKind.KILL_COORDINATOR, SERVICE),
        (FaultKind.KILL, "replica-0"),
        (FaultKind.OUTSIDE, "replica-2"),
    ]
    for fault in found[:4]:
        assert None not in (fault.noticed_after_s, fault.stalled_s, fault.back_after_s), fault
    assert 3.0 <= (found[1].noticed_after_s or 0.0) < 6.0
    again = ["member", "down", "starting", "learning", "member"]
    assert states(record, "replica-1") == ["starting", *again]
    assert states(record, "replica-2")[:7] == ["starting", "member", "hung", *again[1:]]
    assert [span.state for span in service_lane(record)] == ["member", "down", "member"]


def _check_commands(folder: Path) -> None:
    """Check what the other commands say of the run."""
    for words, says in (
        (("report", "d"), "d/report.png"),
        (("compare", "d", "d/undisturbed"), "SAME BITS in all 60 steps"),
        (("ledger", "verify", "d"), "each sample committed exactly once, all members agree"),
        (("train", "--resume", "d"), "there is nothing left to do"),
    ):
        with Command(folder, *words) as command:
            assert command.wait() == 0, command.text
        assert says in command.text


@pytest.mark.slow
def test_a_flipped_bit_is_noticed_at_the_next_vote_and_healed(tmp_path: Path) -> None:
    text(tmp_path)
    with Command(tmp_path, *DEMO, "--sabotage", "--steps=24") as demo:
        assert demo.wait() == 0
    assert "FAULT one bit of model.embedding.weight flipped in replica-2" in demo.text
    assert "the vote finds other bits after step 7, in replica-2: replica-2 heals" in demo.text
    assert re.search(r"replica-2 learned step 7 from replica-0 and replica-1", demo.text)
    assert re.search(r"SAME BITS sha256 \w{64} at step 24 after 1 fault, 0 restarts", demo.text)
    (discarded,) = {line["step"] for line in told(tmp_path / "d", Event.STEP_DISCARDED)}
    assert discarded == 8


def test_a_flipped_bit_that_may_not_heal_ends_the_run_at_the_differing_step(tmp_path) -> None:
    text(tmp_path)
    with Command(tmp_path, *DEMO, "--sabotage", "--no-heal", "--steps=24") as demo:
        assert demo.wait() == 1
    assert "Traceback" not in demo.text
    assert "in replica-2: healing is switched off" in demo.text
    last = demo.text.splitlines()[-1]
    found = re.fullmatch(
        r"DIFFERENT BITS from step 7 on: replica-0 has (\w+), replica-1 has (\w+), "
        r"replica-2 has (\w+), undisturbed it is (\w+)",
        last,
    )
    assert found, last
    right, also, wrong, undisturbed = found.groups()
    assert right == also == undisturbed != wrong
    assert (tmp_path / "d" / "report.png").exists()


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_demo_whose_replicas_are_all_killed_says_that_the_job_restarted(tmp_path: Path) -> None:
    text(tmp_path)
    with Command(tmp_path, *DEMO, *SLOWER) as demo:
        suggested(demo)
        newest = {line["replica"]: line["pid"] for line in told(tmp_path / "d", "process_started")}
        for pid in newest.values():
            os.kill(pid, signal.SIGKILL)
        assert demo.wait(limit_s=120.0) == 0
    assert "all go on from the checkpoint of step" in demo.text
    assert re.search(r"after 7 faults, 1 restart of the job$", demo.text.splitlines()[-1])
