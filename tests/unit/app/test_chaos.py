"""Faults as text and back, and what is refused."""

from __future__ import annotations

import dataclasses
import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from danaus.app.chaos import FaultPlan, Fleet, check
from danaus.app.chaos_fault import Fault
from danaus.app.chaos_kinds import FACTS, PHASES
from danaus.app.chaos_spec import read, write
from danaus.app.events import FaultKind
from danaus.core.errors import ConfigError

PLACES = st.none() | st.integers(0, 99)
SECONDS = st.floats(1e-6, 1e6)
AMOUNTS = {
    "x": st.floats(1.001, 1000),
    "%": st.floats(0.001, 100),
    "s": st.floats(1e-6, 3600),
    "-s": st.floats(-1e9, -1e-3) | st.floats(1e-3, 1e9),
}


@st.composite
def faults(draw: st.DrawFn) -> Fault:
    """Any fault that makes sense."""
    kind = draw(st.sampled_from(list(FACTS)))
    facts = FACTS[kind]
    said: dict[str, object] = {"kind": kind, "all_back": draw(st.booleans())}
    if "replica" in facts.keys:
        said |= draw(st.fixed_dictionaries({"replica": PLACES, "rank": PLACES}))
    elif "host" in facts.keys:
        said["host"] = draw(PLACES)
    if "peer" in facts.keys:
        others = PLACES.filter(lambda peer: peer is None or peer != said["host"])
        said["peer"] = draw(others | st.just("controller"))
        said["one_way"] = draw(st.booleans())
    if facts.where:
        said["where"] = draw(st.none() | st.sampled_from(facts.where))
    if facts.unit:
        forward = said.get("where") == "monotonic"
        amounts = AMOUNTS["s" if forward else facts.unit]
        said["amount"] = draw(st.none() | amounts)
    if facts.lasts:
        said["for_s"] = draw(st.none() | SECONDS)
    if facts.has_moments:
        collective = said.get("where") == "collective"
        phases = ("reduce", "vote") if collective else PHASES
        said["at_phase"] = draw(st.none() | st.sampled_from(phases))
    starts = {"at_step": st.integers(0, 10**9), "after_s": SECONDS, "after_steps": st.integers(0)}
    start = draw(st.none() | st.sampled_from(sorted(starts)))
    if start is not None:
        said[start] = draw(starts[start].filter(lambda value: value < 10**15))
    every = draw(st.sampled_from((None, "every_s", "every_steps")))
    if every is not None:
        said[every] = draw(SECONDS if every == "every_s" else st.integers(1, 10**9))
        said["times"] = draw(st.none() | st.integers(1, 10**9))
    return Fault(**said)  # type: ignore[arg-type]


@given(faults())
def test_what_is_written_reads_back(fault):
    assert read(write(fault)) == fault
    assert write(read(write(fault))) == write(fault)
    assert pickle.loads(pickle.dumps(fault)) == fault


@pytest.mark.parametrize(
    ("spec", "normal"),
    [
        ("kill", "kill"),
        (" Kill-Nursery : host=host1 ".lower(), "kill_nursery:host=1"),
        ("kill:every=20s", "kill:every=20s"),
        ("kill:every=1.5min,replica=replica-2", "kill:replica=2,every=90s"),
        ("kill:every=20steps,times=3,replica=random", "kill:every=20steps,times=3"),
        ("hang:at_step=40,replica=1", "hang:replica=1,at_step=40"),
        ("hang:where=gil", "hang:where=gil"),
        ("hang:process=nursery,host=0", "hang:host=0,process=nursery"),
        ("flip_bit:where=gradient,at_step=30", "flip_bit:at_step=30,where=gradient"),
        (
            "partition:host=1,peer=2,one_way=true,for=5s",
            "partition:host=1,peer=2,for=5s,one_way=true",
        ),
        ("slow:replica=2,amount=3x,for=10s", "slow:replica=2,amount=3x,for=10s"),
        ("partition:host=host1,peer=controller", "partition:host=1,peer=controller"),
        ("loss:host=1,amount=12.5%", "loss:host=1,amount=12.5%"),
        ("delay:host=1,amount=50ms", "delay:host=1,amount=0.05s"),
        ("clock_jump:amount=-1h", "clock_jump:amount=-3600s"),
        ("kill:at_phase=reduce,all_back=yes", "kill:at_phase=reduce,all_back=true"),
    ],
)
def test_a_spec_has_a_normal_form(spec, normal):
    assert write(read(spec)) == normal


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("kil", "did you mean 'kill'?"),
        ("", "there are kill, segv"),
        ("outside", "no kind of fault is called 'outside'"),
        ("kill:", "nothing stands after the colon"),
        ("kill:replica", "'replica': it needs key=value"),
        ("kill:replica=", "it needs key=value"),
        ("kill:replca=1", "did you mean 'replica'?"),
        ("kill:replica=1,replica=2", "replica is named twice"),
        ("kill:replica=one", "replica cannot be 'one': it needs a place from 0, or random"),
        ("kill:replica=-1", "it needs a place from 0"),
        ("kill:replica=1,host=1", "replica and host are both named"),
        ("kill:every=20", "every cannot be '20': it needs 20s or 20steps"),
        ("kill:every=0s", "every is 0.0: it must be above 0"),
        ("kill:every=0steps", "every is 0: it must be at least 1"),
        ("kill:every=1.5steps", "it needs a whole number of steps"),
        ("kill:times=2", "every=..., for times to mean something"),
        ("kill:at_step=3,after=2s", "at_step and after are both named"),
        ("kill:for=5s", "it takes no for: it takes replica, rank, host"),
        ("kill:amount=3x", "it takes no amount"),
        ("kill:where=gradient", "it takes no where"),
        ("kill_coordinator:replica=1", "it takes no replica: it takes no target"),
        ("kill_nursery:replica=1", "it takes no replica: it takes host"),
        ("kill_nursery:at_phase=vote", "it has no at_phase"),
        ("kill:at_phase=vot", "did you mean 'vote'?"),
        ("flip_bit:where=gradent", "did you mean 'gradient'?"),
        ("hang:process=nursery,replica=1", "it takes no replica: it takes host"),
        ("hang:process=nursery,where=gil", "a nursery cannot hang in 'gil'"),
        ("partition:host=1,peer=1", "host and peer are both 1"),
        ("partition:one_way=perhaps", "no value of one_way is called 'perhaps'"),
        ("slow:amount=3", "it needs a number and x, like 3x"),
        ("slow:amount=1x", "above 1x"),
        ("loss:amount=120%", "at most 100%"),
        ("clock_jump:amount=0s", "other than 0"),
        ("clock_jump:where=monotonic,amount=-1s", "a steady clock cannot jump by -1 s: a jump fo"),
        ("hang:where=collective,at_phase=compute", "no collective in compute: at_phase=reduce or"),
        ("kill:after=-0.5s", "after is -0.5: it must be at least 0"),
        ("slow:for=soon", "for cannot be 'soon': it needs a duration, like 5s"),
        ("slow:for=" + "9" * 400 + "s", "for is inf"),
    ],
)
def test_what_cannot_be_read_is_refused_in_one_sentence(spec, words):
    with pytest.raises(ConfigError) as refused:
        read(spec)
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


@settings(max_examples=50)
@given(st.sampled_from(list(FACTS)), st.text(max_size=12))
def test_any_text_is_read_or_refused(kind, text):
    try:
        fault = read(f"{kind}:{text}")
    except ConfigError:
        return
    assert read(write(fault)) == fault


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("kill:replica=3", "there is no replica 3: this run has replicas 0 to 2"),
        ("kill:rank=1", "there is no rank 1: this run has rank 0"),
        ("kill_host:host=7", "there is no host 7"),
        ("partition:host=0,peer=5", "there is no peer 5"),
    ],
)
def test_a_target_that_is_not_there_is_refused(spec, words):
    with pytest.raises(ConfigError, match=words):
        check(FaultPlan.parse(spec), Fleet.of(range(3)))
    with pytest.raises(ConfigError, match="one host"):
        check(FaultPlan.parse("partition"), Fleet.of(range(1)))


def test_replicas_are_named_as_the_run_names_them_when_one_was_drained():
    fleet = Fleet.of((0, 2, 3, 4))
    check(FaultPlan.parse("kill:replica=4"), fleet)
    with pytest.raises(ConfigError, match=r"no replica 1: this run has replicas 0, 2, 3, 4"):
        check(FaultPlan.parse("kill:replica=1"), fleet)


def test_a_host_without_a_replica_can_be_cut_off_and_has_no_worker_to_kill():
    fleet = Fleet.of(range(3), num_hosts=4)
    check(FaultPlan.parse("partition:host=3"), fleet)
    with pytest.raises(ConfigError, match="no replica lives on host 3: one lives on hosts 0 to 2"):
        check(FaultPlan.parse("kill:host=3"), fleet)


def test_every_kind_but_that_of_strangers_can_be_asked_for():
    assert set(FACTS) == set(FaultKind) - {FaultKind.OUTSIDE}
    with pytest.raises(ConfigError, match="nobody can do that on purpose"):
        Fault(kind=FaultKind.OUTSIDE)
    assert all(Fault(kind=kind).facts.about for kind in FACTS)


@pytest.mark.parametrize(
    ("spec", "by"),
    [
        ("kill", "outside"),
        ("kill:at_phase=vote", "inside"),
        ("hang", "outside"),
        ("hang:where=stop", "outside"),
        ("hang:where=loader", "inside"),
        ("nan", "inside"),
        ("delay", "network"),
        ("preempt", "outside"),
    ],
)
def test_who_strikes_follows_from_the_moment_and_the_place(spec, by):
    assert read(spec).by == by


def test_an_id_is_no_part_of_a_fault():
    fault = read("kill:replica=1")
    assert dataclasses.replace(fault, id="chaos-1.1") == fault
