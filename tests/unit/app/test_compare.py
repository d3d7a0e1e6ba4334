"""Two runs side by side."""

from __future__ import annotations

import io
import json
from pathlib import Path

from rich.console import Console

from danaus.app.compare import Comparison, compare, loss_table, run_table
from danaus.app.run_record import read_run
from danaus.testing.run_folders import StoryTeller, tell_demo


def _runs(tmp_path: Path, num_steps: tuple[int, int] = (20, 20)) -> tuple[Path, Path]:
    paths = (tmp_path / "a", tmp_path / "b")
    for path, number in zip(paths, num_steps, strict=True):
        story = StoryTeller(path)
        story.run(number)
        story.finish()
    return paths


def _edit(path: Path, step: int, until: int = 10**9, **changes: object) -> None:
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        if step <= line.get("step", 0) < until:
            line.update(changes)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def _compare(paths: tuple[Path, Path]) -> Comparison:
    return compare(read_run(paths[0]), read_run(paths[1]))


def test_a_run_through_faults_has_the_bits_of_its_undisturbed_twin(tmp_path: Path) -> None:
    tell_demo(tmp_path)
    comparison = _compare((tmp_path, tmp_path / "undisturbed"))

    assert comparison.same
    assert comparison.verdict.startswith("SAME BITS in all 100 steps, ")
    assert comparison.largest_loss_difference()[1] == 0.0


def test_the_first_differing_step_is_named(tmp_path: Path) -> None:
    a, b = _runs(tmp_path)
    for path in (b / "ledger").iterdir():
        _edit(path, 7, fingerprint="0bad", loss=9.0)
    comparison = _compare((a, b))

    assert not comparison.same
    assert comparison.verdict.startswith("DIFFERENT BITS from step 7 on: rank 0 has ")
    assert comparison.verdict.endswith(" in a and 0bad in b")
    assert comparison.largest_loss_difference()[1] > 3


def test_settings_that_make_it_another_training_are_named(tmp_path: Path) -> None:
    a, b = _runs(tmp_path)
    (a / "config.toml").write_text("replicas = 3\n[step]\nnum_steps = 20\nseed = 1\n")
    (b / "config.toml").write_text("replicas = 4\n[step]\nnum_steps = 90\nseed = 1\n")

    assert _compare((a, b)).unlike_settings() == ["step.num_steps is 20 in a and 90 in b"]
    assert _compare((a, a)).unlike_settings() == []


def test_replicas_that_disagree_within_a_run_are_a_difference(tmp_path: Path) -> None:
    a, b = _runs(tmp_path)
    _edit(b / "ledger" / "replica-1-0.jsonl", 11, fingerprint="0bad")
    comparison = _compare((a, b))

    assert comparison.first is not None
    assert comparison.first.step == 11
    assert comparison.first.b.startswith("0bad or ")


def test_bits_that_were_healed_are_no_difference(tmp_path: Path) -> None:
    a, b = _runs(tmp_path)
    _edit(b / "ledger" / "replica-1-0.jsonl", 11, until=13, fingerprint="0bad")

    assert _compare((a, b)).same


def test_a_shorter_run_is_compared_as_far_as_it_goes(tmp_path: Path) -> None:
    comparison = _compare(_runs(tmp_path, (20, 5)))

    assert comparison.same
    assert comparison.verdict.startswith("SAME BITS in all 5 steps")


def test_runs_without_a_common_step_are_not_compared(tmp_path: Path) -> None:
    comparison = _compare(_runs(tmp_path, (20, 0)))

    assert not comparison.same
    assert comparison.verdict == "NOT COMPARED: no step was committed by both runs"


def test_runs_with_other_ranks_or_without_fingerprints_are_not_compared(tmp_path: Path) -> None:
    a, b = _runs(tmp_path)
    for path in (b / "ledger").iterdir():
        _edit(path, 1, fingerprint="")
    assert _compare((a, b)).verdict == "NOT COMPARED: step 1 has no fingerprint"

    lines = (b / "ledger" / "replica-2-0.jsonl").read_text().splitlines()[1:]
    (b / "ledger" / "replica-1-1.jsonl").write_text("\n".join(lines))
    assert "have 1 ranks and those of b 2" in _compare((a, b)).verdict


def test_the_tables_show_the_step_where_they_part(tmp_path: Path) -> None:
    a, b = _runs(tmp_path)
    for path in (b / "ledger").iterdir():
        _edit(path, 8, fingerprint="0bad", loss=9.0)
    comparison = _compare((a, b))
    out = io.StringIO()
    console = Console(file=out, width=100)
    console.print(run_table(comparison), loss_table(comparison))

    lines = [line.split() for line in out.getvalue().splitlines()]
    assert ["steps", "committed", "20", "20"] in lines
    assert any(line[:1] == ["8"] and line[2] == "9.000000" for line in lines)
