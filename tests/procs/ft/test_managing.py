"""``Manager`` and its words: replicas are threads, the quorum service is a process."""

from __future__ import annotations

import functools

import pytest
import torch
from tests.procs.ft.managed_replicas import Replica, Service, all_step, in_step

from danaus.core.errors import ConfigError, DeadlinePassed, NoQuorum, StepImpossible
from danaus.ft import Manager, WorldSizeMode
from danaus.testing.groups import Member, together

pytestmark = pytest.mark.timeout(150)


@pytest.fixture(autouse=True)
def _one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def replicas(tmp_path):
    """Return a function that starts a service and replicas: one for each name of ``weights``."""
    started, services = [], []

    def make(*, service=(), **weights):
        options = weights.pop("options", {})
        if not services:
            expected = f"--expected-replicas={len(weights)}"
            services.append(Service(tmp_path, expected, *service))
        made = [Replica(tmp_path, name, weight, **options) for name, weight in weights.items()]
        started.extend(made)
        return made

    yield make
    for replica in started:
        replica.manager.shutdown()
    for each in services:
        each.end()


def alone(tmp_path, replicas, **options):
    return replicas(a=1.0, options=options)[0]


def test_the_first_step_drops_nothing_and_divides_by_nobody_else(replicas):
    """Gradients 1 and 3 average to 2 at both, though their first weights differ (T-6)."""
    a, b = replicas(a=5.0, b=-7.0)
    assert all_step(a, b, gradients={"a": 1.0, "b": 3.0}) == [True, True]
    assert (a.grad, b.grad) == (2.0, 2.0)
    assert (a.weight.item(), b.weight.item()) == (3.0, 3.0)
    assert (a.num_loads, b.num_loads) == (0, 1)
    for each, rank in ((a, 0), (b, 1)):
        manager = each.manager
        assert (manager.current_step(), manager.batches_committed()) == (1, 2)
        assert (manager.num_participants(), manager.replica_ids()) == (2, ("a", "b"))
        assert (manager.participating_rank(), manager.replica_rank()) == (rank, rank)
        assert manager.is_participating()
        assert manager.state_dict() == {"step": 1, "batches_committed": 2}


@pytest.mark.parametrize("asynchronous", [True, False])
def test_an_error_at_one_replica_commits_nowhere_and_the_next_step_does(replicas, asynchronous):
    a, b, c = replicas(a=1.0, b=1.0, c=1.0, options={"use_async_quorum": asynchronous})
    assert all_step(a, b, c) == [True] * 3
    before = a.weight.item()

    def spoiled():
        b.manager.start_quorum()
        b.weight.grad = torch.tensor([9.0])
        b.manager.report_error(ValueError("no good batch"))
        assert b.manager.allreduce(b.weight.grad).wait()
        assert "no good batch" in str(b.manager.errored())
        return b.manager.should_commit()

    assert together(lambda: a.step(1.0), spoiled, lambda: c.step(1.0)) == [False] * 3
    assert [each.weight.item() for each in (a, b, c)] == [before] * 3
    assert a.manager.current_step() == 1
    assert all_step(a, b, c) == [True] * 3
    assert {each.manager.errored() for each in (a, b, c)} == {None}
    assert a.manager.batches_committed() == 6


def test_spares_vote_and_add_nothing(replicas):
    mode = {"world_size_mode": WorldSizeMode.FIXED_WITH_SPARES, "min_replica_size": 2}
    a, b, c = replicas(a=1.0, b=1.0, c=1.0, options=mode)
    assert all_step(a, b, c, gradients={"a": 2.0, "b": 4.0, "c": 600.0}) == [True] * 3
    assert [each.grad for each in (a, b, c)] == [3.0] * 3
    assert [each.weight.item() for each in (a, b, c)] == [-2.0] * 3
    assert [each.manager.is_participating() for each in (a, b, c)] == [True, True, False]
    assert (c.manager.participating_rank(), c.manager.replica_rank()) == (None, 2)
    assert c.manager.num_participants() == 2
    b.manager.shutdown()
    # Whoever finds the group broken votes with the others again in the next one.
    together(*[lambda r=r: until_committed(r, {"a": 1.0, "c": 7.0}[r.name]) for r in (a, c)])
    assert (a.grad, c.grad, c.manager.participating_rank()) == (4.0, 4.0, 1)


def until_committed(replica, gradient=1.0):
    while not replica.step(gradient):
        pass


@pytest.mark.parametrize("asynchronous", [True, False])
def test_a_state_that_differs_is_found_at_the_next_vote_and_healed(replicas, asynchronous):
    a, b, c = replicas(a=1.0, b=1.0, c=1.0, options={"use_async_quorum": asynchronous})
    assert all_step(a, b, c) == [True] * 3
    b.weight.data += 0.5  # behind the optimiser's back
    assert all_step(a, b, c) == [False] * 3
    while not all(all_step(a, b, c)):
        pass
    assert b.num_loads >= 1
    assert a.num_loads == c.num_loads == 0
    assert {each.weight.item() for each in (a, b, c)} == {a.weight.item()}
    step = a.manager.current_step()
    assert all_step(a, b, c) == [True] * 3
    assert [each.manager.current_step() for each in (a, b, c)] == [step + 1] * 3
    assert all(each.manager.is_participating() for each in (a, b, c))


def test_two_that_differ_end_and_say_so(replicas):
    a, b = replicas(a=1.0, b=1.0)
    assert all_step(a, b) == [True, True]
    b.weight.data += 0.5
    ended = [Member(lambda r=r: until_committed(r)) for r in (a, b)]
    for each in ended:
        error = each.outcome(60.0)
        assert isinstance(error, NoQuorum)
        assert "disagree about step 1 without a majority" in str(error)


def test_what_is_not_compared_may_differ(replicas):
    a, b = replicas(a=1.0, b=2.0, options={"not_compared": ("user/default/weight",)})
    assert all_step(a, b) == [True, True]
    assert (a.weight.item(), b.weight.item()) == (0.0, 1.0)
    assert all_step(a, b) == [True, True]


def test_what_is_registered_as_not_compared_may_differ_and_is_learned(replicas):
    a, b = replicas(a=1.0, b=1.0)
    own = {each.name: torch.tensor([float(ord(each.name))]) for each in (a, b)}
    for each in (a, b):
        mine = own[each.name]
        load, get = (lambda state, to=mine: to.copy_(state["x"])), (lambda x=mine: {"x": x})
        each.manager.register_state_dict_fn("own [1]", load, get, compared=False)
    assert all_step(a, b) == all_step(a, b) == [True, True]
    assert own["a"] != own["b"]
    with pytest.raises(ConfigError, match="is registered late"):
        a.manager.register_state_dict_fn("more", load, get)
    with pytest.raises(ConfigError, match="what is not compared is told late"):
        a.manager.do_not_compare("user/*")
    b.manager.shutdown()
    until_committed(a)
    (late,) = replicas(late=99.0)
    learned = torch.zeros(1)
    take = lambda state: learned.copy_(state["x"])  # noqa: E731
    late.manager.register_state_dict_fn("own [1]", take, lambda: {"x": learned}, compared=False)
    walking = Member(lambda: until_committed(late, 3.0))
    while a.manager.num_participants() < 2:
        until_committed(a, 1.0)
    assert walking.outcome() is None
    assert learned == own["a"]


@pytest.mark.parametrize("how", [True, "fp8"])
def test_what_is_quantised_is_near_and_equal_everywhere(replicas, how):
    a, b = replicas(a=1.0, b=1.0)
    values = {"a": torch.linspace(-1.0, 2.0, 700), "b": torch.linspace(3.0, 0.0, 700)}
    exact = (values["a"] + values["b"]) / 2

    def step(each):
        each.manager.start_quorum()
        mine = values[each.name]
        with pytest.raises(ConfigError, match="quantised"):
            each.manager.allreduce(mine, should_quantize=how, reduce_op="max")
        assert each.manager.allreduce(mine, should_quantize=how).wait()
        return each.manager.should_commit()

    assert together(lambda: step(a), lambda: step(b)) == [True, True]
    assert torch.equal(values["a"], values["b"])
    assert not torch.equal(values["a"], exact)
    assert torch.all((values["a"] - exact).abs() < 0.2)


def test_one_that_leaves_is_not_waited_for_and_a_late_one_learns(replicas):
    a, b = replicas(a=1.0, b=1.0)
    assert all_step(a, b) == [True, True]
    b.manager.shutdown()
    until_committed(a)
    assert a.manager.num_participants() == 1
    (late,) = replicas(late=99.0)
    walking = Member(lambda: until_committed(late, 3.0))
    while a.manager.num_participants() < 2:
        until_committed(a, 1.0)
    walking.outcome()
    assert late.num_loads == 1
    while not all(all_step(a, late, gradients={"a": 2.0, "late": 4.0})):
        pass
    assert (a.grad, late.grad) == (3.0, 3.0)
    assert late.weight.item() == a.weight.item()
    assert late.manager.state_dict() == a.manager.state_dict()


def test_too_few_replicas_commit_nothing(replicas):
    (a,) = replicas(a=1.0, options={"min_replica_size": 2, "max_retries": 2})
    assert [a.step(1.0), a.step(1.0)] == [False, False]
    with pytest.raises(StepImpossible, match="3 times in a row"):
        a.step(1.0)
    assert a.weight.item() == 1.0


def test_a_checkpoint_of_the_users_own_is_gone_on_from(replicas):
    a, b = replicas(a=1.0, b=1.0)
    for each in (a, b):
        each.manager.load_state_dict({"step": 100, "batches_committed": 150})
    assert all_step(a, b) == [True, True]
    assert a.manager.state_dict() == {"step": 101, "batches_committed": 152}
    with pytest.raises(ConfigError, match="loaded late"):
        a.manager.load_state_dict({"step": 0, "batches_committed": 0})


def test_each_kind_of_call(replicas):
    made = replicas(a=1.0, b=1.0, c=1.0)

    def act(replica):
        manager, rank = replica.manager, "abc".index(replica.name)
        mean = torch.full((2, 3), float(rank), dtype=torch.float64)
        whole = torch.tensor([rank, 10 * rank])
        both = [torch.tensor(float(rank)), torch.full((5,), rank + 1.0, dtype=torch.bfloat16)]
        said, mine = torch.tensor([rank]), torch.zeros(2)
        pending = [
            manager.allreduce(mean),
            manager.allreduce(whole, reduce_op=torch.distributed.ReduceOp.SUM),
            manager.allreduce(both),
            manager.broadcast(said, root=2),
            manager.reduce_scatter(mine, [torch.full((2,), rank + 10.0 * i) for i in range(3)]),
        ]
        gathered, done = manager.allgather(torch.tensor([rank], dtype=torch.int16))
        ring = torch.zeros(4)
        if rank == 0:
            pending += [manager.send(torch.ones(4), dst=1), manager.recv(ring, src=1)]
        elif rank == 1:
            pending += [manager.recv(ring, src=0), manager.send(2 * torch.ones(4), dst=0)]
        assert all(each.wait(30.0) for each in (*pending, done))
        assert pending[0].get_future().value() is mean
        return (mean.unique().tolist(), whole.tolist(), both[0].item(), both[1].tolist(),
                said.item(), mine.tolist(), [each.item() for each in gathered],
                ring.tolist())  # fmt: skip

    results = in_step(made, act)
    for rank, result in enumerate(results):
        assert result == ([1.0], [3, 30], 1.0, [2.0] * 5, 2, [1.0 + 10 * rank] * 2, [0, 1, 2],
                          [[2.0] * 4, [1.0] * 4, [0.0] * 4][rank])  # fmt: skip


def test_after_an_error_each_kind_of_call_completes_and_does_nothing(replicas):
    made = replicas(a=1.0, b=1.0)

    def act(replica):
        manager, rank = replica.manager, "ab".index(replica.name)
        manager.start_quorum()
        if rank == 0:
            manager.report_error(ValueError("no good batch"))
        tensors = [torch.full((2,), 3.0 + rank) for _ in range(4)]
        mean, said, mine, ring = tensors
        gathered, done = manager.allgather(torch.tensor([rank]))
        pending = [
            manager.allreduce(mean),
            manager.broadcast(said, root=1),
            manager.reduce_scatter(mine, [torch.ones(2), torch.ones(2)]),
            manager.send(torch.ones(2), dst=1 - rank),
            manager.recv(ring, src=1 - rank),
        ]
        if rank == 0:  # the other waits in vain, and learns from that
            assert all(each.wait(30.0) for each in (*pending, done))
            assert [each.tolist() for each in tensors] == [[3.0] * 2] * 4
            assert not gathered
        return manager.should_commit()

    assert together(*(functools.partial(act, each) for each in made)) == [False, False]
    assert all_step(*made) == [True, True]


def test_calls_of_different_sizes_end_the_step_and_not_the_run(replicas):
    a, b = replicas(a=1.0, b=1.0)

    def odd(replica, size):
        replica.manager.start_quorum()
        replica.manager.allreduce(torch.zeros(size)).wait()
        after = replica.manager.allreduce(torch.zeros(3))
        assert after.wait(30.0)
        assert replica.manager.errored() is not None
        return replica.manager.should_commit()

    assert together(lambda: odd(a, 5000), lambda: odd(b, 3)) == [False, False]
    assert all_step(a, b) == [True, True]


def test_words_out_of_place_are_refused(tmp_path, replicas):
    a = alone(tmp_path, replicas)
    manager = a.manager
    with pytest.raises(ConfigError, match="a reduction outside of a step"):
        manager.allreduce(torch.ones(1))
    with pytest.raises(ConfigError, match=r"should_commit\(\) outside of a step"):
        manager.should_commit()
    with pytest.raises(ConfigError, match=r"wait_quorum\(\) outside of a step"):
        manager.wait_quorum()
    assert (manager.num_participants(), manager.participating_rank()) == (0, None)
    assert not manager.is_participating()
    manager.start_quorum()
    manager.start_quorum()  # nothing was reduced: it is the same step
    with pytest.raises(ConfigError, match=r"cannot average torch\.int64"):
        manager.allreduce(torch.ones(1, dtype=torch.int64))
    with pytest.raises(ConfigError, match="reduce_op is"):
        manager.allreduce(torch.ones(1), reduce_op=torch.distributed.ReduceOp.BAND)
    with pytest.raises(ConfigError, match="without healing"):
        manager.start_quorum(allow_heal=False)
    manager.allreduce(torch.ones(1))
    with pytest.raises(ConfigError, match="its outcome was not asked for"):
        manager.start_quorum()
    assert manager.should_commit()
    with pytest.raises(ConfigError, match="outside of a step"):
        manager.should_commit()
    with pytest.raises(ConfigError, match="registered late"):
        manager.register_state_dict_fn("more", a.load, a.state)
    manager.shutdown()
    manager.shutdown()
    with pytest.raises(ConfigError, match="was shut down"):
        a.step(1.0)


def test_a_quorum_that_does_not_come_is_waited_for_again(replicas):
    a, b = replicas(a=1.0, b=1.0)
    with pytest.raises(DeadlinePassed):
        a.manager.start_quorum(timeout=0.2)
    with pytest.raises(DeadlinePassed):
        a.manager.wait_quorum(timeout=0.2)
    assert all_step(a, b) == [True, True]


def test_a_manager_that_knows_no_state_says_so(tmp_path, replicas):
    alone(tmp_path, replicas)
    with (
        Manager(replica_id="x", folder=tmp_path) as manager,
        pytest.raises(ConfigError, match="knows no state"),
    ):
        manager.start_quorum()


def test_what_cannot_travel_is_named(tmp_path, replicas):
    alone(tmp_path, replicas)
    with Manager(None, print, lambda: {"x": {"y": object()}}, folder=tmp_path) as manager:
        with pytest.raises(ConfigError, match=r"holds builtins\.object at user/default/x/y"):
            manager.start_quorum()
        with pytest.raises(ConfigError, match="are registered"):
            manager.register_state_dict_fn("default", print, dict)


def test_one_that_is_asked_to_leave_ends_after_its_step(replicas):
    a, b = replicas(a=1.0, b=1.0)
    assert all_step(a, b) == [True, True]
    b.manager._thread._participant.leave("its host is wanted")  # as the service's drain does
    ended = Member(lambda: until_it_ends(b))
    staying = Member(lambda: until_alone(a))
    error = ended.outcome(60.0)
    assert isinstance(error, NoQuorum)
    assert "its host is wanted" in str(error)
    assert staying.outcome(60.0) is None
    assert a.manager.num_participants() == 1


def until_it_ends(replica):
    while True:
        replica.step(1.0)


def until_alone(replica):
    while not replica.step(1.0) or replica.manager.num_participants() > 1:
        pass
