"""``danaus bench soak``, short: real processes, kills and cuts; every letter is accounted for."""

from __future__ import annotations

import io
import json

import pytest
from rich.console import Console

from danaus.app.bench_soak import run_soak
from danaus.app.bench_soak_settings import SoakConfig
from danaus.core.errors import ConfigError


@pytest.mark.timeout(120)
def test_every_letter_is_accounted_for(tmp_path):
    out, output = tmp_path / "soak.json", io.StringIO()
    settings = SoakConfig(seconds=3.0, processes=4, kill_every_s=0.6, cut_every_s=0.2, out=out)
    assert run_soak(settings, console=Console(file=output, width=200)) == 0, output.getvalue()
    told = json.loads(out.read_text())
    assert told["violations"] == []
    assert told["num_got"] > 0
    assert told["num_kills"] > 0
    assert told["num_connections_cut"] > 0
    assert "every letter is accounted for" in output.getvalue()


@pytest.mark.parametrize("wrong", [{"processes": 1}, {"seconds": 0.0}, {"cut_every_s": -1.0}])
def test_what_cannot_be_soaked_is_refused(wrong):
    with pytest.raises(ConfigError):
        SoakConfig(**wrong)
