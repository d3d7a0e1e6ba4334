"""A plain loop under ``Loop``, in plain processes: only the quorum service sees to them."""

from __future__ import annotations

import signal
from collections import Counter

import pytest
from tests.procs.ft.forked_run import Run, end
from tests.procs.ft.loop_parts import HOLD, PLAN, network, optimizer_of, plain_bits

from danaus.ft.plain_work import PlainWork


@pytest.fixture
def run(tmp_path):
    started = Run(tmp_path / "run")
    yield started
    started.close()


def num_bytes_of_state() -> int:
    model = network()
    state = PlainWork(model, optimizer_of(model)).state()
    return sum(tensor.numel() * tensor.element_size() for tensor in state.values())


def begin(run: Run) -> None:
    for name in "abc":
        run.start(name)
    run.all_say(f"step {HOLD} by 3", *"abc")


def end_with_the_bits_of_a_plain_loop(run: Run) -> None:
    run.all_say(f"step {PLAN.num_steps} by 3", *"abc")
    run.all_say(f"bits {plain_bits()}", *"abc")
    computed = Counter[int]()
    for lines in run.lines.values():
        for step, count in (line.split()[1:] for line in lines if line.startswith("computed")):
            computed[int(step)] += int(count)
    # What the killed one had done until then is not among the lines of its second life.
    assert {computed[step] for step in range(HOLD + 1, PLAN.num_steps + 1)} == {PLAN.num_leaves}


def test_a_killed_replica_is_gone_a_second_later_and_learns_when_it_is_back(run):
    begin(run)
    run.signal("b", signal.SIGKILL)
    run.open_gate()
    run.all_say(f"step {HOLD + 1} by 2", "a", "c")
    run.start("b", 1)
    assert int(run.said("b", "learned").split()[2]) == num_bytes_of_state()
    end_with_the_bits_of_a_plain_loop(run)
    (fence,) = run.journal("quorum_fenced")
    assert "its connection closed " in str(fence["reason"])


def test_the_service_dies_a_replica_hangs_and_both_come_back(run):
    begin(run)
    run.service.kill()
    end(run.service)
    run.signal("b", signal.SIGSTOP)
    run.service = run.start_service()
    run.open_gate()
    run.all_say(f"step {HOLD + 1} by 2", "a", "c")
    run.signal("b", signal.SIGCONT)
    run.said("b", "learned")
    end_with_the_bits_of_a_plain_loop(run)
    (epoch,) = {line["epoch"] for line in run.journal("quorum_announced") if line["finished"]}
    assert str(epoch).startswith("1."), "the service kept its disk, so no new term began"
