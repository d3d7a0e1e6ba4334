"""``danaus bench actor``, small: every row runs, ours always, a peer's where it is installed."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from danaus.app.bench_actor import PEERS, run_bench
from danaus.app.bench_actor_rows import ROWS
from danaus.app.bench_actor_settings import ActorBenchConfig
from danaus.core.errors import ConfigError

PEERS_FOLDER = Path(__file__).parents[3] / "bench" / "peers"
INSTALLED = all((PEERS_FOLDER / name / ".venv" / ".ready").exists() for name in PEERS)


def measured(tmp_path, *rows, peers=None):
    """Run some rows; return what each side says of each, and what was printed."""
    out = tmp_path / "actor.json"
    settings = ActorBenchConfig(rows=rows, repeats=1, small=True, out=out, peers=peers)
    output = io.StringIO()
    assert run_bench(settings, console=Console(file=output, width=200)) == 0
    return json.loads(out.read_text())["rows"], output.getvalue()


@pytest.mark.timeout(120)
def test_every_row_is_measured(tmp_path):
    told, text = measured(tmp_path)
    assert set(told) == set(ROWS)
    for name, row in ROWS.items():
        figures = {each["what"]: each for each in told[name]["danaus"]["figures"]}
        assert row.goals.keys() <= figures.keys(), text
        assert all(each["values"] for each in figures.values()), text
    assert "to reach" in text


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.skipif(not INSTALLED, reason="make peers")
def test_peers_are_measured_in_the_same_table(tmp_path):
    told, text = measured(tmp_path, "get", "kill", peers=PEERS_FOLDER)
    for sides in told.values():
        assert set(sides) == {*PEERS, "danaus"}
        assert all(each["values"] for side in sides.values() for each in side["figures"]), text


def test_a_row_that_does_not_exist_is_refused():
    with pytest.raises(ConfigError, match=r"no row .speed..*await, get"):
        run_bench(ActorBenchConfig(rows=("speed",)), console=Console(file=io.StringIO()))


def test_a_peer_that_is_not_installed_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"torchmonarch has no virtual environment.*make peers"):
        run_bench(ActorBenchConfig(peers=tmp_path), console=Console(file=io.StringIO()))
