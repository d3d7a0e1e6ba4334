"""The service's command line, and what it reads from a run's ledgers."""

from __future__ import annotations

from pathlib import Path

import pytest

from danaus.quorum.events import Announce, Beaten, JoinAsked, TimePassed
from danaus.quorum.ledger_traces import TAIL_BYTES, LedgerTraces, read_traces
from danaus.quorum.messages import Epoch, Join, StepReport
from danaus.quorum.service_options import ServiceOptions, read_options
from danaus.quorum.state import QuorumMachine

from .quorum_cases import seat


def options(folder: Path, *more: str) -> ServiceOptions:
    needed = ["--folder", str(folder / "quorum"), "--address", "unix:/s", "--secret", "/x"]
    return read_options([*needed, *more])


def first_epoch(machine: QuorumMachine) -> Epoch | None:
    machine.handle(JoinAsked(Join(seat("a"), StepReport(0, "seed"), 1)), 0.0)
    for tick in range(8):
        machine.handle(Beaten(seat("a").member), float(tick))
        for said in machine.handle(TimePassed(), float(tick)):
            if isinstance(said, Announce):
                return said.announcement.epoch
    return machine.epoch


def test_limits_have_defaults_and_can_be_named(tmp_path: Path) -> None:
    given = options(tmp_path)
    assert given.progress.hang_limit_s is None
    assert given.ledger == tmp_path / "ledger"
    given = options(tmp_path, "--hang-limit-s", "3", "--min-replicas", "2", "--no-heal")
    assert given.progress.hang_limit_s == 3.0
    assert given.quorum.min_replicas == 2
    assert not given.quorum.heal_divergence


def test_a_mistake_is_exit_code_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        options(tmp_path, "--hang-limit-s", "soon")
    assert caught.value.code == 2
    assert "invalid float value" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("--min-replicas=0", "min_replicas is 0: at least 1"),
        ("--expected-replicas=-1", "expected_replicas is -1: at least 0"),
        ("--hold-share=nan", "hold_share is nan: at least 0"),
    ],
)
def test_numbers_that_say_nothing_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], option: str, words: str
) -> None:
    with pytest.raises(SystemExit, match="2"):
        options(tmp_path, option)
    assert words in capsys.readouterr().err


def test_ledgers_tell_the_last_step_and_the_highest_term(tmp_path: Path) -> None:
    assert read_traces(tmp_path / "none") == LedgerTraces()
    (tmp_path / "a-0.jsonl").write_text(
        '{"line":"opened","at":1}\n{"line":"committed","step":7,"epoch":[2,3]}\n'
        '{"line":"rolled_back","step":5,"term":3}\n{"line":"committed","st'
    )
    (tmp_path / "b-0.jsonl").write_bytes(b"\xff\n[1]\n")
    assert read_traces(tmp_path) == LedgerTraces(steps=5, term=3)
    (tmp_path / "c-0.jsonl").write_text('{"line":"committed","step":6,"epoch":[3,1]}\n')
    assert read_traces(tmp_path) == LedgerTraces(steps=6, term=3)


def test_a_step_of_more_samples_than_the_tail_holds_is_found(tmp_path: Path) -> None:
    samples = ",".join(str(2 * each) for each in range(TAIL_BYTES // 4))
    (tmp_path / "a-0.jsonl").write_text(
        f'{{"line":"committed","step":9,"epoch":[1,2],"samples":["{samples}"]}}\n'
        '{"line":"opened","at":1}\n'
    )
    assert read_traces(tmp_path) == LedgerTraces(steps=9, term=1)


def test_a_first_start_begins_at_the_first_epoch(tmp_path: Path) -> None:
    assert first_epoch(options(tmp_path).machine(None, began=False)) == Epoch(1, 1)


def test_without_any_trace_the_clock_gives_a_term_that_was_not_used(tmp_path: Path) -> None:
    epoch = first_epoch(options(tmp_path).machine(None, began=True))
    assert epoch is not None
    assert epoch.term > 1_000_000_000
