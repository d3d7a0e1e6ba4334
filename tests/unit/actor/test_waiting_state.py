"""For whom a waiting host works, and when a job is over."""

from __future__ import annotations

from danaus.actor.waiting_state import (
    GONE_LOOKS,
    AgentGone,
    Application,
    BeginWork,
    ControllerAway,
    ControllerBack,
    ControllerLookedFor,
    EndWork,
    JoinAsked,
    KeepWork,
    LeaveAsked,
    LetWorkEnd,
    LookForController,
    Say,
    TimePassed,
    TurnAway,
    WaitingMachine,
    WakeAt,
)

AT = "tcp:127.0.0.1:4000"


def by(session: int, job: str = "a", **more) -> JoinAsked:
    return JoinAsked(Application(session, job, f"run {job}", AT, **more))


def orders(machine, event, now=0.0):
    """What is to be done, without what is only said."""
    return tuple(each for each in machine.handle(event, now) if not isinstance(each, Say))


def joined(**more):
    machine = WaitingMachine()
    assert orders(machine, by(1, **more)) == (BeginWork(1),)
    return machine


def test_a_free_host_works_for_whoever_comes_first_and_turns_others_away():
    machine = joined()
    (away,) = orders(machine, by(2, "b"))
    assert away == TurnAway(2, "it works for run a")
    assert machine.works_for(1)
    assert not machine.works_for(2)


def test_the_same_job_may_join_again_and_its_newest_session_counts():
    machine = joined()
    assert orders(machine, by(2)) == (BeginWork(2),)
    assert orders(machine, ControllerAway(1)) == ()
    assert machine.works_for(2)


def test_a_later_controller_of_a_detached_job_has_what_is_there_go_on():
    machine = joined(detached=True)
    machine.handle(ControllerAway(1), 1.0)
    assert orders(machine, by(2, detached=True, adopt=True)) == (KeepWork(2),)
    assert machine.works_for(2)
    assert not machine.works_for(1), "the one before is not obeyed any more"
    (away,) = orders(machine, by(3, "b", adopt=True))
    assert isinstance(away, TurnAway)


def test_who_would_adopt_and_finds_a_free_host_begins_there():
    assert orders(WaitingMachine(), by(1, adopt=True)) == (BeginWork(1),)


def test_a_job_that_is_over_leaves_the_host_free():
    machine = joined()
    assert orders(machine, LeaveAsked(1, "done")) == (EndWork("done", 1),)
    assert machine.is_free
    assert orders(machine, by(2, "b")) == (BeginWork(2),)


def test_nobody_ends_the_work_of_another():
    machine = joined()
    assert orders(machine, LeaveAsked(2, "done")) == (TurnAway(2, "it does not work for this job"),)
    assert machine.works_for(1)


def test_a_controller_whose_machine_says_that_it_ended_is_gone_after_some_looks():
    machine = joined()
    look = LookForController(1, AT)
    assert orders(machine, ControllerAway(1), 0.0) == (look, WakeAt(1.0))
    for n in range(1, GONE_LOOKS):
        assert orders(machine, ControllerLookedFor(1, "gone"), n - 0.5) == ()
        assert orders(machine, TimePassed(), float(n)) == (look, WakeAt(n + 1.0))
    (end,) = orders(machine, ControllerLookedFor(1, "gone"), 2.5)
    assert end == EndWork("its controller is gone since 2.5 s")
    assert machine.is_free


def test_a_controller_that_is_cut_off_is_waited_for_until_the_limit():
    machine = joined(alone_limit_s=30.0)
    orders(machine, ControllerAway(1), 0.0)
    for now in range(1, 30):
        orders(machine, ControllerLookedFor(1, "unknown"), float(now))
        assert orders(machine, TimePassed(), float(now))[1] == WakeAt(now + 1.0)
    (end,) = orders(machine, TimePassed(), 30.0)
    assert end == EndWork("cut off from its controller for 30 s")


def test_a_controller_that_listens_after_all_is_not_gone():
    machine = joined()
    orders(machine, ControllerAway(1), 0.0)
    for _ in range(GONE_LOOKS):
        assert orders(machine, ControllerLookedFor(1, "gone")) in ((), ())
        assert orders(machine, ControllerLookedFor(1, "there")) == ()
    assert machine.works_for(1)


def test_a_controller_that_is_back_is_not_looked_for():
    machine = joined()
    orders(machine, ControllerAway(1), 0.0)
    orders(machine, ControllerBack(1), 1.0)
    assert orders(machine, TimePassed(), 2.0) == ()
    assert orders(machine, ControllerLookedFor(1, "gone"), 2.0) == ()
    assert machine.works_for(1)


def test_whoever_comes_while_a_controller_is_away_is_told_so():
    machine = joined()
    orders(machine, ControllerAway(1), 0.0)
    (away,) = orders(machine, by(2, "b"), 3.0)
    assert away.why == "it works for run a, which has been away for 3 s; try again a little later"


def test_a_detached_job_goes_on_without_its_controller_until_its_agent_ends():
    machine = joined(detached=True)
    assert orders(machine, ControllerAway(1), 0.0) == (LetWorkEnd(),)
    assert orders(machine, ControllerLookedFor(1, "gone"), 1.0) == ()
    assert orders(machine, TimePassed(), 1e6) == ()
    assert isinstance(orders(machine, AgentGone(), 1e6)[0], EndWork)
    assert machine.is_free


def test_an_agent_that_ends_is_its_controllers_to_replace():
    machine = joined()
    assert orders(machine, AgentGone()) == ()
    assert machine.works_for(1)
