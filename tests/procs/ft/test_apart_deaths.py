"""DiLoCo over processes: one dies between the preparation of a fragment and its commit.

What must come out is computed beside it, by a few lines that know nothing of replicas.
"""

from __future__ import annotations

import signal

import pytest
import torch
from tests.procs.ft.apart_parts import (
    ALPHA,
    DELAY,
    FATAL,
    LAST,
    MORE,
    SYNC_EVERY,
    bits,
    build,
    inner_step,
    outer_of,
)
from tests.procs.ft.forked_run import Run

pytestmark = pytest.mark.timeout(180)
PERIOD = SYNC_EVERY // 2


class ApartRun(Run):
    script = ("forking.py", "apart_parts")


@pytest.fixture
def run(tmp_path):
    started = ApartRun(tmp_path / "run")
    yield started
    started.close()


@pytest.fixture(autouse=True)
def _one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


class Reference:
    """What replicas come to, each outer step with those that are named."""

    def __init__(self, names):
        self.local = {name: build() for name in names}
        _, self.backups, _ = build()
        self.outers = [outer_of(fragment) for fragment in self.backups]
        self.step = 0

    def outer_step(self, names):
        at = self.step % 2
        brought = {}
        for inner in range(self.step * PERIOD, (self.step + 1) * PERIOD):
            for name in names:
                model, fragments, optimizer = self.local[name]
                inner_step(model, optimizer, name, inner)
                if inner == (self.step + 1) * PERIOD - DELAY - 1:
                    pairs = zip(self.backups[at], fragments[at], strict=True)
                    brought[name] = [backup.detach() - here.detach() for backup, here in pairs]
        for number, backup in enumerate(self.backups[at]):
            total = brought[names[0]][number]
            for name in names[1:]:
                total = total + brought[name][number]
            backup.grad = total / len(names)
        self.outers[at].step()
        with torch.no_grad():
            for name in names:
                for backup, here in zip(self.backups[at], self.local[name][1][at], strict=True):
                    here.copy_(torch.lerp(backup, here, ALPHA))
        self.step += 1

    def told(self, name):
        backups = [each for fragment in self.backups for each in fragment]
        return f"weights {bits(list(self.local[name][0]))}", f"backups {bits(backups)}"


def expected(num_with_all, num_without_b):
    reference = Reference("abc")
    for _ in range(num_with_all):
        reference.outer_step("abc")
    for _ in range(num_without_b):
        reference.outer_step("ac")
    return reference


def outcomes(run, name):
    words = [line.split() for line in run.lines[name]]
    return [(w[0], int(w[1]), int(w[3])) for w in words if w[0] in ("committed", "discarded")]


def committed(first, last, num):
    return [("committed", step, num) for step in range(first, last + 1)]


def end_as(run, reference, names):
    for name in names:
        assert (run.said(name, "weights"), run.said(name, "backups")) == reference.told(name)
        # Nobody has lost an inner step, nor taken one twice.
        assert run.said(name, "inner") == f"inner {LAST * PERIOD}"


def begin(run, **modes):
    for name, mode in modes.items():
        run.start(name, mode)


def test_three_processes_come_to_what_is_computed_by_hand(run):
    begin(run, a="lives", b="lives", c="lives")
    end_as(run, expected(LAST, 0), "abc")
    assert all(outcomes(run, name) == committed(1, LAST, 3) for name in "abc")


@pytest.mark.parametrize("mode", [pytest.param("in_delay", marks=pytest.mark.slow), "before_vote"])
def test_one_that_dies_before_it_votes_is_left_out_and_the_others_lose_nothing(run, mode):
    begin(run, a="lives", b=mode, c="lives")
    run.until(lambda: all(outcomes(run, name)[FATAL - 1 :] for name in "ac"))
    for name in "ac":
        run.said(name, "backups")
    assert outcomes(run, "a") == outcomes(run, "c")
    left_out = ("committed", FATAL, 3) not in outcomes(run, "a")
    if mode == "in_delay":
        assert left_out
    if left_out:
        # All that was prepared before is brought again, to a mean of two.
        after = [("discarded", FATAL, 3), *committed(FATAL, LAST, 2)]
        assert outcomes(run, "a") == [*committed(1, FATAL - 1, 3), *after]
    end_as(run, expected(FATAL - left_out, LAST - FATAL + left_out), "ac")


def test_one_that_dies_after_its_vote_is_in_the_mean(run):
    """It may have known of the commit: the others, prepared too, commit (T-1)."""
    begin(run, a="lives", b="after_vote", c="lives")
    end_as(run, expected(FATAL, LAST - FATAL), "ac")
    for name in "ac":
        assert ("committed", FATAL, 3) in outcomes(run, name)
        assert ("committed", LAST, 2) in outcomes(run, name)


@pytest.mark.slow
def test_one_that_is_killed_and_comes_back_learns_all_and_takes_part(run):
    """What travels is quantised; all have the same all the same."""
    mode = "endless_int8"
    begin(run, a=mode, b=mode, c=mode)
    run.all_say(f"committed {FATAL} by 3", *"abc")
    run.signal("b", signal.SIGKILL)
    run.open_gate()
    run.until(lambda: any(num == 2 for _, _, num in outcomes(run, "a")))
    run.start("b", mode)
    ends = {run.said(name, "backups") for name in "abc"}
    assert len(ends) == 1
    loaded = [line.split() for line in run.lines["b"] if line.startswith("loaded")]
    assert [words[1] for words in loaded[:2]] == ["outer", "local"]
    assert all(int(words[2]) >= FATAL for words in loaded)
    assert outcomes(run, "b")[-MORE:] == outcomes(run, "a")[-MORE:]
    assert {num for _, _, num in outcomes(run, "b")[-MORE:]} == {3}
