"""Two candidates by a lease under walls, pauses and clocks that drift: never two quorums."""

from __future__ import annotations

import pytest
from hypothesis import given
from tests.simulation import lease_world
from tests.simulation.engine import Violation
from tests.simulation.lease_world import run_leased
from tests.simulation.plans import SERVICE_MOMENTS, Fault, Plan, plans, random_plan
from tests.simulation.test_schedules import LONG, QUICK

from danaus.quorum import lease


@pytest.mark.parametrize("seed", range(4))
def test_an_undisturbed_run_has_one_leader(seed):
    world = run_leased(Plan(seed=seed, steps=6))
    assert len(world.monitor.ends) == 3
    assert world.store.record is not None
    assert world.store.record.term == 1


@pytest.mark.timeout(120)
@pytest.mark.parametrize("kind", ["pause service", "second service", "crash service"])
def test_whoever_leads_is_followed_at_any_moment(kind):
    followed = 0
    for seed in range(12):
        for moment in (*SERVICE_MOMENTS, "time"):
            nth = 1 + seed % 3 + 8 * (moment == "time")
            faults = (Fault(kind, moment, nth, span=80), Fault("kill", "time", 12))
            world = run_leased(Plan(seed=seed, steps=8, faults=faults))
            assert world.store.record is not None
            followed += world.store.record.term > 1
    assert followed


@pytest.mark.timeout(300)
@QUICK
@given(plan=plans())
def test_any_schedule(plan):
    run_leased(plan)


@pytest.mark.timeout(300)
def test_many_schedules():
    for seed in range(200):
        run_leased(random_plan(seed))


@pytest.mark.slow
@pytest.mark.timeout(3600)
@LONG
@given(plan=plans())
def test_any_schedule_at_length(plan):
    run_leased(plan)


def troubled(seed: int) -> Plan:
    kinds = ("pause service", "second service")
    strikes = [Fault(kinds[n % 2], "time", 12 + 40 * n, span=80) for n in range(4)]
    deaths = [Fault("kill", "time", at) for at in (15, 60, 95, 140)]
    return Plan(seed=seed, steps=30, slow=10, faults=(*strikes, *deaths))


def many_troubled() -> None:
    for seed in range(100):
        run_leased(troubled(seed))


@pytest.mark.timeout(120)
def test_a_leader_in_trouble_again_and_again():
    many_troubled()


MUTANTS = {
    "holders stop too late": (lease, "HOLDER_SHARE", 2.5),
    "standbys do not wait": (lease, "STANDBY_SHARE", 0.3),
    "nobody asks whether the lease is certain": (
        lease_world.Candidate, "is_certain", property(lambda self: self.machine.leading),
    ),
}  # fmt: skip


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", MUTANTS)
def test_a_broken_rule_is_noticed(name, monkeypatch):
    where, what, broken = MUTANTS[name]
    monkeypatch.setattr(where, what, broken)
    with pytest.raises(Violation):
        many_troubled()
