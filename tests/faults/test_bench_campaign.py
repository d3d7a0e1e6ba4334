"""``danaus bench campaign``, small: many kinds of faults, the undisturbed bits, right blame."""

from __future__ import annotations

import io
import json

import pytest
from rich.console import Console

from danaus.app.bench_campaign import run_campaign
from danaus.app.campaign_disk import lacking
from danaus.app.campaign_mix import campaign_plan
from danaus.app.chaos_log import read_record
from danaus.app.chaos_record import replay
from danaus.app.settings import CampaignConfig
from danaus.testing.lab import missing

FAULTS, SEED, EVERY = 12, 1, 15
UNNOTICED = ("clock_jump", "slow", "disk_full", "kill_nursery")
"""Kinds that nobody has to be blamed for."""


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_small_campaign_ends_with_the_undisturbed_bits_and_blames_nobody_else(tmp_path):
    settings = CampaignConfig(
        faults=FAULTS, seed=SEED, every_steps=EVERY, run_dir=tmp_path / "campaign"
    )
    output = io.StringIO()
    code = run_campaign(settings, console=Console(file=output, width=150))
    told = json.loads((tmp_path / "campaign" / "campaign.json").read_text())

    assert code == 0, output.getvalue()
    assert told["verdict"].startswith("SAME BITS")
    # One that waits for its moment goes with its victim, if that is struck before.
    assert len(told["faults"]) + told["num_missed"] + told["num_forgotten"] == FAULTS
    assert len({each["kind"] for each in told["faults"]}) >= FAULTS - 4
    wrong = [(each["kind"], each["wrong"]) for each in told["faults"] if each["wrong"]]
    assert not wrong, "somebody was blamed whom nothing had hit"
    nobody = [each["kind"] for each in told["faults"] if not each["right"]]
    assert not [kind for kind in nobody if not kind.startswith(UNNOTICED)]

    record = read_record(tmp_path / "campaign" / "run" / "chaos" / "1.jsonl")
    plan = campaign_plan(FAULTS, SEED, every_steps=EVERY, lacking=lacking())
    struck = replay(record).faults
    assert len(struck) + told["num_missed"] == FAULTS
    assert {fault.kind for fault in struck} <= {fault.kind for fault in plan.faults}


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_campaign_is_made_again_from_its_record(tmp_path):
    first = CampaignConfig(faults=8, seed=2, every_steps=EVERY, run_dir=tmp_path / "first")
    console = Console(file=io.StringIO())
    assert run_campaign(first, console=console) == 0
    record = tmp_path / "first" / "run" / "chaos" / "1.jsonl"

    again = CampaignConfig(replay=record, run_dir=tmp_path / "again")
    assert run_campaign(again, console=console) == 0
    second = replay(read_record(tmp_path / "again" / "run" / "chaos" / "1.jsonl"))
    once = replay(read_record(record))
    assert [(f.kind, f.replica, f.host) for f in second.faults] == [
        (f.kind, f.replica, f.host) for f in once.faults
    ]


@pytest.mark.skipif(bool(missing()), reason=missing())
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_campaign_over_hosts_with_two_ranks_in_each_replica_ends_with_the_same_bits(tmp_path):
    settings = CampaignConfig(
        faults=12, seed=5, every_steps=EVERY, ranks=2, hosts=3, run_dir=tmp_path / "campaign"
    )
    output = io.StringIO()
    assert run_campaign(settings, console=Console(file=output)) == 0, output.getvalue()
    told = json.loads((tmp_path / "campaign" / "campaign.json").read_text())
    assert told["command"].endswith("--replicas 3 --ranks 2 --hosts 3")
    kinds = {each["kind"].split()[0] for each in told["faults"]}
    assert kinds & {"partition", "loss", "delay"}, "networks were harmed"
