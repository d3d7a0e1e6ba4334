"""T-7: what stands after rollbacks, and what the judgement finds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from danaus.ft.ledger import Committed, Ledger, Line, Opened, RolledBack
from danaus.ft.lineage import History, Verification, merge, verify
from danaus.quorum.messages import Epoch, MemberId

NAMES = ("r0", "r1", "r2")
MEMBERS = tuple(MemberId(name, 0, 1) for name in NAMES)
DATA_EPOCH = 6  # samples; a step has 3


def committed(step: int, term: int = 1, n: int = 1, **changes: object) -> Committed:
    first = 3 * (step - 1)
    line = Committed(
        at=float(step),
        step=step,
        epoch=Epoch(term, n),
        members=MEMBERS,
        leaves={"r0": (0, 1), "r1": (1, 2), "r2": (2, 3)},
        samples=tuple(str(first + leaf) for leaf in range(3)),
        num_tokens=48,
        loss=1.0 / step,
        grad_norm=1.0,
        fingerprint=f"after {step}",
    )
    return msgspec.structs.replace(line, **changes)


def write(folder: Path, name: str, lines: Sequence[Line], rank: int = 0) -> Path:
    path = folder / f"{name}-{rank}.jsonl"
    member = MemberId(name, rank, 1)
    with Ledger(path, Opened(at=0.0, member=member, samples_per_data_epoch=DATA_EPOCH)) as ledger:
        for line in lines:
            ledger.append(line)
    return path


def judge(folder: Path, **ledgers: Sequence[Line]) -> tuple[History, Verification]:
    history = merge([write(folder, name, lines) for name, lines in ledgers.items()])
    return history, verify(history)


def test_a_run_through_deaths_is_whole(tmp_path: Path) -> None:
    every = [committed(step) for step in range(1, 7)]
    history, verdict = judge(tmp_path, r0=every[:4], r1=[*every[:2], *every[4:]], r2=every[1:])
    assert verdict.ok, verdict.problems
    assert (verdict.num_steps, verdict.num_samples, history.last_step) == (6, 18, 6)


def test_a_rollback_voids_later_steps_of_lower_terms(tmp_path: Path) -> None:
    before = [committed(step, samples=(str(step), "", "")) for step in (3, 4)]
    after = [committed(step, term=2) for step in (3, 4)]
    first = [committed(1), committed(2)]
    back = RolledBack(at=9.0, step=2, term=2, reason="all replicas lost")
    history, verdict = judge(tmp_path, r0=[*first, *before], r1=[*first, *before, back, *after])
    assert verdict.ok, verdict.problems
    assert history.num_void == 4
    assert [str(note) for note in verdict.notes] == [
        "step 2: rolled back to this step in term 2: all replicas lost"
    ]


def test_without_its_rollback_the_same_lines_are_refused(tmp_path: Path) -> None:
    lines = [committed(1), committed(2), committed(2, term=2, fingerprint="other")]
    _, verdict = judge(tmp_path, r0=lines, r1=lines[:2])
    assert "diverged" in str(verdict.problems[0]) or "disagree" in str(verdict.problems[0])


def test_a_step_nobody_holds_is_a_problem(tmp_path: Path) -> None:
    _, verdict = judge(tmp_path, r0=[committed(1), committed(3)])
    assert str(verdict.problems[0]).startswith("step 2: no ledger holds this step")


def test_the_one_that_differs_is_named(tmp_path: Path) -> None:
    good = [committed(1), committed(2)]
    _, verdict = judge(tmp_path, r0=good, r1=[good[0], committed(2, fingerprint="bad")], r2=good)
    (problem,) = verdict.problems
    assert (problem.step, problem.names) == (2, ("r1/0: bad",))
    assert "diverged in fingerprint from after 2" in problem.what


def test_a_healed_divergence_is_a_note(tmp_path: Path) -> None:
    good = [committed(1), committed(2), committed(3)]
    bad = [good[0], committed(2, fingerprint="bad"), good[2]]
    _, verdict = judge(tmp_path, r0=good, r1=bad, r2=good)
    assert verdict.ok
    assert "healed later" in str(verdict.notes[0])


def test_two_of_two_minds_have_no_majority(tmp_path: Path) -> None:
    _, verdict = judge(tmp_path, r0=[committed(1)], r1=[committed(1, loss=2.0)])
    assert "no majority" in str(verdict.problems[0])


def test_ranks_are_compared_with_their_like(tmp_path: Path) -> None:
    paths = [
        write(tmp_path, name, [committed(1, fingerprint=f"rank {rank}")], rank)
        for name in NAMES
        for rank in (0, 1)
    ]
    assert verify(merge(paths)).ok


def test_a_sample_committed_twice_is_a_problem(tmp_path: Path) -> None:
    _, verdict = judge(tmp_path, r0=[committed(1), committed(2, samples=("0", "4", "5"))])
    assert "sample 0 was already committed in 1" in str(verdict.problems[0])


def test_a_sample_left_out_is_a_problem(tmp_path: Path) -> None:
    lines = [committed(1), committed(2, samples=("3", "4", "6")), committed(3)]
    lines[2] = committed(3, samples=("7", "8", "9"))
    _, verdict = judge(tmp_path, r0=lines)
    assert "never committed" in str(verdict.problems[-1])


def test_a_sample_of_a_later_data_epoch_is_a_problem(tmp_path: Path) -> None:
    _, verdict = judge(tmp_path, r0=[committed(1, samples=("0", "1", "13"))])
    assert "before its data epoch had begun" in str(verdict.problems[0])


@pytest.mark.parametrize(
    "leaves", [{"r0": (0, 2)}, {"r0": (0, 2), "r1": (1, 3)}, {"r0": (0, 3), "r1": (3, 4)}]
)
def test_leaves_missing_or_computed_twice_are_a_problem(
    tmp_path: Path, leaves: dict[str, tuple[int, int]]
) -> None:
    _, verdict = judge(tmp_path, r0=[committed(1, leaves=leaves)])
    assert "do not cover each leaf once" in str(verdict.problems[0])


def test_a_leaf_computed_by_a_stranger_is_a_problem(tmp_path: Path) -> None:
    _, verdict = judge(tmp_path, r0=[committed(1, leaves={"r9": (0, 3)})])
    assert "r9 computed without being a member" in str(verdict.problems[0])


def test_a_step_said_twice_in_one_epoch_is_a_problem(tmp_path: Path) -> None:
    _, verdict = judge(tmp_path, r0=[committed(1), committed(1)])
    assert "committed twice" in str(verdict.problems[0])


def test_unlike_machines_are_noted_and_unlike_settings_refused(tmp_path: Path) -> None:
    for name, torch in (("r0", "2.13"), ("r1", "2.9")):
        first = Opened(
            at=0.0,
            member=MemberId(name, 0, 1),
            identity=torch,
            environment={"torch": torch, "threads": "1"},
        )
        Ledger(tmp_path / f"{name}-0.jsonl", first).close()
    verdict = verify(merge(tmp_path.glob("*.jsonl")))
    assert [note.what for note in verdict.notes] == ["members differ in torch"]
    assert "different settings" in verdict.problems[0].what
