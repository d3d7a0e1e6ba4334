"""Plans of faults in the words of a real run, in simulated time: whole campaigns, and cuts."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.simulation.campaigns import HARSH, MILD, NUM_CAMPAIGNS, campaign
from tests.simulation.chaos import ChaosWorld, run_chaos
from tests.simulation.engine import Violation
from tests.simulation.mutants import put_in_place
from tests.simulation.plans import Plan

from danaus.app.chaos_kinds import FACTS
from danaus.testing import FaultPlan


def run_text(*specs: str, plan: Plan) -> ChaosWorld:
    return run_chaos(plan, FaultPlan.parse(*specs, seed=plan.seed))


@pytest.mark.timeout(600)
def test_campaigns_of_every_kind_of_fault_end_in_a_true_run():
    struck: Counter[str] = Counter()
    diverged = 0
    for seed in range(NUM_CAMPAIGNS):
        world = run_chaos(*campaign(seed))
        struck.update(fault.kind for fault in world.struck)
        diverged += world.diverged is not None
    assert set(struck) == set(FACTS)
    assert struck.total() > 80 * NUM_CAMPAIGNS
    assert diverged <= 2  # where a bit flips twice at one step, the run is to stop


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", [*MILD, *HARSH])
def test_each_kind_of_fault_again_and_again(kind):
    rules = [f"{kind}{',' if ':' in kind else ':'}every=4steps,times=6"]
    if any(f"phase={phase}" in kind for phase in ("learning", "replayed", "serving")):
        rules.append("kill:every=6steps,times=4")
    world = run_text(*rules, plan=Plan(replicas=3, ranks=1 + len(kind) % 2, steps=40, service_on=0))
    assert world.struck[0].kind == FaultPlan.parse(rules[0]).faults[0].kind
    assert world.ended


@pytest.mark.parametrize(
    ("where", "change"),
    [
        (
            "danaus.ft.step:StepMachine._in",
            ("self.stage is stage", "self.stage in (stage, Stage.JOINING)"),
        ),
        ("danaus.quorum.convene:_announce", ("new_term = s.by_hearsay or", "new_term = False and")),
        ("danaus.quorum.resolve:_decide", ("    if unprepared:", "    if False:")),
    ],
    ids=["a promise", "a new term", "the unprepared"],
)
@pytest.mark.timeout(600)
def test_campaigns_notice_a_broken_rule(monkeypatch, where, change):
    put_in_place(monkeypatch, where, change)
    for seed in range(60):
        try:
            ChaosWorld(*campaign(seed)).run()
        except Violation:
            return
    pytest.fail("60 campaigns did not notice it")


# -- cuts ----------------------------------------------------------------------------------------

ONE_WAY = (
    "partition:host=1,peer=0,one_way=true",  # the service does not hear 1, which hears it
    "partition:host=0,peer=1,one_way=true",  # and the other way round
    "partition:host=1,peer=2,one_way=true",  # 2 does not hear 1, which hears 2
    "partition:host=1,one_way=true",  # nobody hears 1
    "partition:host=0,one_way=true",  # nobody hears the service, which hears all
    "partition:host=0",  # the service is on the side that is cut off
)


@pytest.mark.parametrize("cut", ONE_WAY)
@pytest.mark.parametrize("for_s", [1, 6, 20])
def test_a_cut_is_lived_through(cut, for_s):
    for seed in range(3):
        plan = Plan(seed=seed, replicas=3, steps=60, slow=3 * seed, service_on=0)
        world = run_text(f"{cut},for={for_s}s,at_step={3 + seed}", plan=plan)
        assert world.ended
        assert len(world.struck) == 1


def test_the_side_without_the_service_takes_no_step_and_comes_back():
    """Two of three are cut off from the service and the third: they wait, and lose nothing."""
    plan = Plan(replicas=3, steps=120, service_on=0, hosts=(0, 1, 1))
    world = run_text("partition:host=0,peer=1,for=10s,at_step=5", plan=plan)
    by_host_1 = [
        (at, what.step)
        for at, who, what in world.engine.trace
        if type(what).__name__ == "Apply" and who in ("r1/0#1", "r2/0#1")
    ]
    began = next(at for at, who, _ in world.engine.trace if who == "fault")
    assert not [step for at, step in by_host_1 if began + 1.0 < at < began + 10.0]
    assert len(world.monitor.ends) == 3
    assert not world.monitor.rollbacks


def test_a_service_that_lives_on_though_another_was_started_splits_nothing():
    """Half of the members stay with the old one, behind a cut; both have the one disk."""
    for seed in range(10):
        plan = Plan(seed=seed, replicas=4, steps=60, hosts=(0, 0, 1, 1), service_on=0)
        faults = FaultPlan.parse("partition:host=0,for=8s,at_step=4", seed=seed)
        world = ChaosWorld(plan, faults)
        world.engine.at(2.0 + seed / 5, world.second_service, "host-r1")
        world.run()
        assert world.ended
