"""``danaus bench ft``, small: our rows run, and what can be judged at any load is right."""

from __future__ import annotations

import io
import json

import pytest
from rich.console import Console

from danaus.app.bench_figures import Figure, Goal, seen, windows
from danaus.app.bench_ft import run_bench
from danaus.app.bench_ft_settings import FtBenchConfig
from danaus.core.errors import ConfigError


def measured(tmp_path, *rows):
    """Run some rows; return the figures of each by what they are of, and what was printed."""
    out = tmp_path / "ft.json"
    settings = FtBenchConfig(rows=rows, repeats=1, small=True, out=out)
    output = io.StringIO()
    assert run_bench(settings, console=Console(file=output, width=150)) == 0
    told = json.loads(out.read_text())["rows"]
    assert tuple(told) == rows
    by_row = [{each["what"]: each for each in told[row]["danaus"]["figures"]} for row in rows]
    return by_row, output.getvalue()


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_deaths_and_votes_are_measured(tmp_path):
    (kill, vote, first), text = measured(tmp_path, "kill", "vote", "first_step")
    assert len(kill) == 8
    assert all(each["values"] for each in (*kill.values(), *vote.values())), text
    assert first["mean of 1 and 3"]["values"] == [2.0]
    assert "reached" in text


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_hangs_quorums_transfers_and_averages_are_measured(tmp_path):
    rows = ("hang", "quorum", "transfer", "averages")
    (hang, quorum, transfer, averages), text = measured(tmp_path, *rows)
    assert [each["words"] for each in hang.values()] == ["evicted, the rest go on"], text
    assert all(each["values"] for each in (*quorum.values(), *transfer.values())), text
    assert {each["words"] for each in averages.values()} == {"exact", "caught at the next vote"}


def test_a_row_that_does_not_exist_is_refused():
    with pytest.raises(ConfigError, match=r"no row .speed..*kill, rejoin"):
        run_bench(FtBenchConfig(rows=("speed",)), console=Console(file=io.StringIO()))


def test_a_goal_is_met_by_the_median_or_always_and_against_a_peer():
    figure = Figure("gap", "s", (0.1, 0.2, 0.9))
    assert Goal(0.3).is_met(figure)
    assert not Goal(0.3, always=True).is_met(figure)
    assert Goal(0.15, high_is_good=True).is_met(figure)
    assert not Goal(0.15, high_is_good=True, always=True).is_met(figure)
    assert Goal(like_peer=True).is_met(figure) is None
    assert Goal(like_peer=True).is_met(figure, Figure("gap", "s", (0.2,)))
    assert not Goal(like_peer=True).is_met(figure, Figure("gap", "s", (0.1,)))
    assert Goal(exactly="exact").is_met(seen("averages", "exact"))
    assert not Goal(exactly="exact").is_met(seen("averages", "2 of 5 tensors are wrong"))
    assert not Goal(0.3).is_met(seen("gap", "no step for 40 s"))
    assert windows([1.0, 2.0, 3.0, 9.0, 9.0, 9.0], 2) == (2.0, 9.0)
