"""Ownership, routing of failures and the order of endings (A-6, A-7), without a process."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from danaus.actor.failure import Fault, MeshFailure
from danaus.actor.restart import Restart
from danaus.actor.supervision import SupervisionMachine
from danaus.actor.supervision_messages import (
    ActorGone,
    ActorHosted,
    ActorKey,
    ActorLeaving,
    ActorRaised,
    Answered,
    AskOwner,
    CallFaultHook,
    CleanUp,
    EndMesh,
    FailurePassed,
    MeshEnded,
    MeshOwned,
    PassUp,
    ProcessesGone,
    ProcessName,
    StartAgain,
    StopAsked,
)
from danaus.core.extent import Extent

KILLED = Fault("signal", "its process was ended by SIGKILL", signal="SIGKILL")
BOOM = Fault("exception", "ValueError: boom", traceback="Traceback ...")
BOSS = ActorKey("boss", 0)


def procs(number: int, base: str = "p") -> tuple[ProcessName, ...]:
    return tuple(ProcessName("job", f"host/{base}/{rank}#0") for rank in range(number))


def mesh(name: str, owner: ActorKey | None, *, size: int = 2, on: str | None = None) -> MeshOwned:
    points = tuple(Extent.of({"r": size}).points())
    return MeshOwned(name, name, owner, points, procs(size, on or name), on)


def hosted(key: ActorKey, *, remote: bool = False) -> ActorHosted:
    return ActorHosted(key, key.mesh_id, Extent((), ()).point(0), remote)


@pytest.fixture
def machine():
    return SupervisionMachine()


@pytest.fixture
def owned(machine):
    """A boss that lives here, owned by the root, owns processes ``m`` with actors ``a``."""
    machine.handle(mesh("boss", None, size=1))
    machine.handle(hosted(BOSS))
    machine.handle(mesh("m", BOSS))
    machine.handle(mesh("a", BOSS, on="m"))
    return machine


def test_the_root_s_failures_reach_the_fault_hook(machine):
    machine.handle(mesh("m", None))
    (said,) = machine.handle(ProcessesGone(procs(1, "m"), KILLED))
    assert isinstance(said, CallFaultHook)
    assert said.failure.mesh == "m"
    assert said.failure.ranks == (0,)
    assert said.failure.signal == "SIGKILL"
    assert said.failure.process_ids == ("host/m/0#0",)


def test_an_owner_is_asked_once_for_processes_and_the_actors_on_them(owned):
    (said,) = owned.handle(ProcessesGone(procs(1, "m"), KILLED))
    assert isinstance(said, AskOwner)
    assert said.owner == BOSS
    assert said.failure.mesh == "m"


def test_actors_on_processes_of_somebody_else_are_told_to_their_own_owner(owned):
    owned.handle(mesh("others", None, on="m"))
    said = owned.handle(ProcessesGone(procs(2, "m"), KILLED))
    assert [type(each) for each in said] == [AskOwner, CallFaultHook]
    assert said[1].failure.mesh == "others"


def test_a_lost_host_is_one_failure_with_all_its_points(owned):
    lost = Fault("host_lost", "host is lost")
    (said,) = owned.handle(ProcessesGone(procs(2, "m"), lost))
    assert said.failure.kind == "host_lost"
    assert said.failure.ranks == (0, 1)


def test_a_process_is_lost_once(owned):
    owned.handle(ProcessesGone(procs(1, "m"), KILLED))
    assert owned.handle(ProcessesGone(procs(1, "m"), KILLED)) == ()


def test_a_mesh_spawned_on_a_dead_process_fails_at_once(owned):
    owned.handle(ProcessesGone(procs(1, "m"), KILLED))
    (said,) = owned.handle(mesh("late", None, on="m"))
    assert isinstance(said, CallFaultHook)


def test_failures_of_one_owner_are_asked_about_one_at_a_time(owned):
    owned.handle(ProcessesGone(procs(2, "m")[:1], KILLED))
    assert owned.handle(ProcessesGone(procs(2, "m")[1:], KILLED)) == ()
    (said,) = owned.handle(Answered(BOSS, handled=True))
    assert isinstance(said, AskOwner)
    assert said.failure.ranks == (1,)
    assert owned.handle(Answered(BOSS, handled=True)) == ()


def test_what_is_not_handled_goes_to_the_owner_s_owner(owned):
    owned.handle(ProcessesGone(procs(1, "m"), KILLED))
    (said,) = owned.handle(Answered(BOSS, handled=False))
    assert isinstance(said, CallFaultHook)
    assert said.failure.mesh == "m"


def test_what_is_not_handled_goes_up_through_actors(owned):
    middle = ActorKey("middle", 0)
    owned.handle(mesh("middle", BOSS, size=1))
    owned.handle(hosted(middle))
    owned.handle(mesh("deep", middle))
    owned.handle(ProcessesGone(procs(1, "deep"), KILLED))
    (said,) = owned.handle(Answered(middle, handled=False))
    assert said == AskOwner(BOSS, said.failure)
    assert said.failure.mesh == "deep"


def test_it_leaves_for_the_process_of_the_owner_s_owner():
    machine = SupervisionMachine()
    machine.handle(hosted(BOSS, remote=True))
    machine.handle(mesh("m", BOSS))
    machine.handle(ProcessesGone(procs(1, "m"), KILLED))
    (said,) = machine.handle(Answered(BOSS, handled=False))
    assert isinstance(said, PassUp)
    assert said.actor == BOSS


def test_it_arrives_at_the_owner_s_owner(owned):
    failure = MeshFailure("deep", (), "signal", "killed elsewhere")
    (said,) = owned.handle(FailurePassed(ActorKey("a", 1), failure))
    assert said == AskOwner(BOSS, failure)


def test_a_supervisor_that_raises_replaces_the_failure(owned):
    owned.handle(ProcessesGone(procs(1, "m"), KILLED))
    (said,) = owned.handle(Answered(BOSS, handled=False, raised=BOOM))
    assert isinstance(said, CallFaultHook)
    assert said.failure.kind == "exception"
    assert said.failure.mesh == "boss"
    assert said.failure.signal is None
    assert said.failure.cause is not None
    assert said.failure.cause.mesh == "m"
    assert "SIGKILL" in said.failure.report()


def test_an_endpoint_that_raised_unheard_is_a_failure_and_leaves_the_actor(owned):
    (said,) = owned.handle(ActorRaised(ActorKey("a", 1), BOOM))
    assert said.failure.kind == "exception"
    assert said.failure.ranks == (1,)
    owned.handle(Answered(BOSS, handled=True))
    assert owned.handle(ActorRaised(ActorKey("a", 1), BOOM)) != ()


def test_an_actor_that_never_came_to_be_fails_once(owned):
    owned.handle(ActorRaised(ActorKey("a", 1), BOOM, fatal=True))
    owned.handle(Answered(BOSS, handled=True))
    assert owned.handle(ActorRaised(ActorKey("a", 1), BOOM)) == ()


def test_a_mesh_that_is_being_stopped_does_not_fail(owned):
    assert owned.handle(StopAsked("m")) == (EndMesh("m"),)
    assert owned.handle(StopAsked("m")) == ()
    assert owned.handle(ProcessesGone(procs(2, "m"), KILLED)) == ()
    assert owned.handle(ActorRaised(ActorKey("a", 0), BOOM)) == ()
    owned.handle(MeshEnded("m"))
    assert owned.owned_by(BOSS) == ()


def test_what_an_actor_owns_ends_before_it_cleans_up(owned):
    owned.handle(mesh("second", BOSS))
    said = owned.handle(ActorLeaving(BOSS))
    assert said == (EndMesh("second"), EndMesh("m"))
    assert owned.handle(MeshEnded("second")) == ()
    assert owned.handle(MeshEnded("m")) == (CleanUp(BOSS),)
    assert owned.handle(MeshEnded("m")) == ()


def test_an_actor_that_owns_nothing_cleans_up_at_once(machine):
    machine.handle(hosted(BOSS))
    assert machine.handle(ActorLeaving(BOSS)) == (CleanUp(BOSS),)
    assert machine.handle(ActorLeaving(BOSS)) == ()


def test_the_root_leaves_when_all_it_owns_has_ended(owned):
    assert owned.handle(ActorLeaving(None)) == (EndMesh("boss"),)
    assert owned.handle(MeshEnded("boss")) == (CleanUp(None),)


def test_failures_of_an_owner_that_leaves_go_to_its_owner(owned):
    owned.handle(ProcessesGone(procs(1, "m"), KILLED))
    owned.handle(mesh("late", BOSS))
    owned.handle(ActorLeaving(BOSS))
    said = owned.handle(ActorGone(BOSS))
    assert [type(each) for each in said] == [CallFaultHook]


def test_a_failure_survives_pickling(owned):
    (said,) = owned.handle(ProcessesGone(procs(1, "m"), KILLED))
    again = pickle.loads(pickle.dumps(said.failure))
    assert again == said.failure
    assert again.ranks == (0,)
    assert "m[r=0] failed (signal)" in str(again)


@given(st.lists(st.sampled_from(["kill", "raise", "handled", "passed", "raised"]), max_size=40))
def test_every_failure_is_told_to_exactly_one_owner_at_a_time(script):
    machine = SupervisionMachine()
    machine.handle(mesh("boss", None, size=1))
    machine.handle(hosted(BOSS))
    machine.handle(mesh("m", BOSS, size=30))
    left, asked, happened, ended = list(procs(30, "m")), 0, 0, 0
    for what in script:
        if what == "kill":
            happened += 1
            said = machine.handle(ProcessesGone((left.pop(),), KILLED))
        elif what == "raise":
            happened += 1
            said = machine.handle(ActorRaised(ActorKey("m", 0), BOOM))
        else:
            raised = BOOM if what == "raised" else None
            ended += asked
            asked = 0
            said = machine.handle(Answered(BOSS, handled=what == "handled", raised=raised))
        asked += sum(isinstance(each, AskOwner) for each in said)
        assert asked <= 1
        assert not any(isinstance(each, CallFaultHook) for each in said) or what in (
            "passed",
            "raised",
        )
        assert asked == (1 if happened > ended else 0)


# -- starting again (A-9) ----------------------------------------------------------------------


def kept(name: str, policy: Restart, *, size: int = 2, on: str | None = "m") -> MeshOwned:
    points = tuple(Extent.of({"r": size}).points())
    return MeshOwned(name, name, BOSS, points, procs(size, on or name), on, policy)


def killed_at(time_s: float, *ranks: int, incarnation: int = 0) -> ProcessesGone:
    names = tuple(ProcessName("job", f"host/m/{rank}#{incarnation}") for rank in ranks)
    return ProcessesGone(names, Fault("signal", "killed", signal="SIGKILL", time_s=time_s))


@pytest.fixture
def keeping(machine):
    machine.handle(mesh("boss", None, size=1))
    machine.handle(hosted(BOSS))
    machine.handle(mesh("m", BOSS))
    machine.handle(kept("k", Restart(intensity=2, period_s=10.0)))
    return machine


def test_a_killed_process_is_started_again_with_its_actors_and_nobody_is_told(keeping):
    (said,) = keeping.handle(killed_at(1.0, 1))
    assert isinstance(said, StartAgain)
    assert (said.procs, said.actors, said.after_s) == ((("m", (1,)),), (("k", (1,)),), 0.0)
    assert keeping.handle(killed_at(1.0, 1)) == ()  # the same end, told twice
    (said,) = keeping.handle(killed_at(2.0, 1, incarnation=1))  # its heir
    assert said.actors == (("k", (1,)),)


def test_the_owner_is_told_once_the_budget_is_used_up(keeping):
    keeping.handle(killed_at(1.0, 0))
    keeping.handle(killed_at(2.0, 1))
    (said,) = keeping.handle(killed_at(3.0, 1, incarnation=1))
    assert isinstance(said, AskOwner)
    assert (said.failure.mesh, said.failure.ranks) == ("m", (1,))
    assert said.failure.process_ids == ("host/m/1#1",)
    assert said.failure.reason == "killed; not started again: 3 failures in 10 s, 2 allowed"


def test_a_budget_is_whole_again_after_its_period(keeping):
    for time_s in (1.0, 2.0, 12.5, 13.0):
        incarnation = int(keeping._meshes["m"].spec.processes[0].process_id[-1])
        (said,) = keeping.handle(killed_at(time_s, 0, incarnation=incarnation))
        assert isinstance(said, StartAgain)


def test_meshes_without_a_policy_on_the_same_process_are_told_of(keeping):
    keeping.handle(mesh("plain", BOSS, on="m"))
    told, again = keeping.handle(killed_at(1.0, 0))
    assert isinstance(told, AskOwner)
    assert (told.failure.mesh, told.failure.ranks) == ("plain", (0,))
    assert again.actors == (("k", (0,)),)
    keeping.handle(Answered(BOSS, handled=True))
    (again,) = keeping.handle(killed_at(2.0, 0, incarnation=1))  # it has no rank 0 any more
    assert isinstance(again, StartAgain)


def test_strategies_reach_actors_whose_processes_live(machine):
    machine.handle(mesh("m", None, size=4))
    machine.handle(kept("all", Restart("one_for_all"), size=4))
    machine.handle(kept("rest", Restart("rest_for_one"), size=4))
    (said,) = machine.handle(killed_at(1.0, 2))
    assert said.procs == (("m", (2,)),)
    assert dict(said.actors) == {"all": (0, 1, 2, 3), "rest": (2, 3)}


def test_an_actor_that_failed_begins_anew(keeping):
    (said,) = keeping.handle(ActorRaised(ActorKey("k", 0), BOOM))
    assert (said.procs, said.actors) == ((), (("k", (0,)),))
    (said,) = keeping.handle(ActorRaised(ActorKey("k", 0), BOOM, fatal=True))
    assert said.actors == (("k", (0,)),)
    (said,) = keeping.handle(ActorRaised(ActorKey("k", 0), BOOM, fatal=True))
    assert isinstance(said, AskOwner)
    assert keeping.handle(ActorRaised(ActorKey("k", 0), BOOM)) == ()  # it is lost


def test_backoff_waits_for_the_slowest_of_several(machine):
    machine.handle(mesh("m", None))
    machine.handle(kept("quick", Restart()))
    machine.handle(kept("slow", Restart(backoff_s=3.0)))
    machine.handle(killed_at(1.0, 0))
    (said,) = machine.handle(killed_at(2.0, 0, incarnation=1))
    assert said.after_s == 3.0


@pytest.mark.parametrize("kind", ["host_lost", "elsewhere", "stopping"])
def test_what_cannot_be_started_here_is_not(machine, kind):
    if kind != "elsewhere":
        machine.handle(mesh("m", None))
    machine.handle(kept("k", Restart()))
    if kind == "stopping":
        machine.handle(StopAsked("m"))
    fault = Fault("host_lost" if kind == "host_lost" else "signal", "gone")
    said = machine.handle(ProcessesGone(procs(1, "m"), fault))
    assert not [each for each in said if isinstance(each, StartAgain)]
    assert bool(said) == (kind != "stopping")


def test_actors_on_a_part_of_the_processes_have_ranks_of_their_own(machine):
    machine.handle(mesh("m", None, size=4))
    points = tuple(Extent.of({"r": 2}).points())
    on_two = MeshOwned("k", "k", None, points, procs(4, "m")[2:], "m", Restart())
    machine.handle(on_two)
    (said,) = machine.handle(killed_at(1.0, 3))
    assert (said.procs, said.actors) == ((("m", (3,)),), (("k", (1,)),))
    (told,) = machine.handle(killed_at(2.0, 0))  # on which none of them lives
    assert isinstance(told, CallFaultHook)
    assert told.failure.ranks == (0,)


def test_what_ends_together_is_started_again_together(keeping):
    keeping.handle(kept("k2", Restart(intensity=0)))
    told, again = keeping.handle(killed_at(1.0, 0, 1))  # both processes, and one policy says no
    assert isinstance(told, AskOwner)
    assert (told.failure.mesh, told.failure.ranks) == ("k2", (0, 1))
    assert "not started again: 1 failures in 60 s, 0 allowed" in told.failure.reason
    assert (again.procs, again.actors) == ((("m", (0, 1)),), (("k", (0, 1)),))
