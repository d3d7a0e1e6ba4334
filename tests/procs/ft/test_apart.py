"""LocalSGD and DiLoCo over managers: the one in memory keeps the contract of the real one.

Replicas are threads; the real manager's quorum service is a process.
"""

from __future__ import annotations

import pytest
import torch
from tests.procs.ft.managed_replicas import Service
from tests.procs.ft.transfer_parts import addresses, fetch, same
from tests.unit.ft.apart import (
    CASE_IDS,
    CASES,
    Net,
    Scalar,
    managers,
    run_case,
    train,
    weights,
)

from danaus.core.errors import ConfigError
from danaus.ft import DiLoCo, LocalSGD, Manager, WorldSizeMode
from danaus.ft.fragments import Learned
from danaus.ft.state_tree import flatten
from danaus.testing.groups import soon, together

pytestmark = pytest.mark.timeout(150)


@pytest.fixture(autouse=True)
def _one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


class Run:
    """Managers beside a quorum service that waits for ``num`` of them."""

    def __init__(self, folder, num):
        self.folder, self.made = folder, []
        self.service = Service(folder, f"--expected-replicas={num}")

    def manager(self, name, **options):
        options = {"use_async_quorum": False, **options}
        self.made.append(Manager(replica_id=name, folder=self.folder, **options))
        return self.made[-1]

    def close(self):
        for each in self.made:
            each.shutdown()
        self.service.end()


@pytest.fixture
def run(tmp_path):
    """Return a function that starts a run for so many replicas."""
    started = []

    def start(num):
        started.append(Run(tmp_path, num))
        return started[0]

    yield start
    for each in started:
        each.close()


@pytest.fixture(params=["memory", "real"])
def three(request, run):
    """Three managers, of which the last is a spare."""
    if request.param == "memory":
        return managers(3, spares=["c/0#0"])
    begun = run(3)
    mode = {"world_size_mode": WorldSizeMode.FIXED_WITH_SPARES, "min_replica_size": 2}
    made = [begun.manager(name, **mode) for name in "abc"]
    for each in made:
        each.register_state_dict_fn("nothing", lambda _: None, dict)
    return made


def in_step(manager, rank, act):
    manager.start_quorum()
    manager.wait_quorum()
    value = act(manager, rank)
    return value, manager.should_commit()


def each_in_step(made, act):
    return together(*[lambda m=m, n=n: in_step(m, n, act) for n, m in enumerate(made)])


def test_a_manager_reduces_gathers_and_commits_everywhere_or_nowhere(three):
    def exchange(manager, rank):
        summed = torch.tensor([float(rank + 1)])
        manager.allreduce(summed, reduce_op="sum").wait()
        found, pending = manager.allgather(torch.tensor([rank], dtype=torch.uint8))
        pending.wait()
        assert manager.errored() is None
        return summed.item(), [each.item() for each in found], manager.is_participating()

    def spoilt(manager, rank):
        if rank == 1:
            manager.report_error(ValueError("no good batch"))
            assert "no good" in str(manager.errored())

    seen = each_in_step(three, exchange)
    assert seen == [((3.0, [0, 1, 2], n < 2), True) for n in range(3)]
    assert each_in_step(three, spoilt) == [(None, False)] * 3
    assert [each.current_step() for each in three] == [1] * 3
    assert each_in_step(three, lambda _manager, _rank: None) == [(None, True)] * 3
    assert {each.errored() for each in three} == {None}


def test_a_manager_refuses_words_out_of_place(three):
    manager = three[0]
    for word in (manager.should_commit, manager.wait_quorum):
        with pytest.raises(ConfigError, match="start_quorum"):
            word()
    with pytest.raises(ConfigError, match="outside of a step"):
        manager.allreduce(torch.ones(1))
    manager.register_state_dict_fn("more", print, dict)
    with pytest.raises(ConfigError, match="'more' are registered"):
        manager.register_state_dict_fn("more", print, dict)
    for each in three[1:]:
        each.register_state_dict_fn("more", print, dict)

    def begins_twice(each, _rank):
        each.start_quorum()  # nothing was reduced: it is the same step
        each.allreduce(torch.ones(1)).wait()
        with pytest.raises(ConfigError, match="outcome"):
            each.start_quorum()

    assert each_in_step(three, begins_twice) == [(None, True)] * 3


@pytest.mark.parametrize("case", CASES, ids=CASE_IDS)
def test_histories_are_exact_over_the_real_manager(run, case):
    begun = run(2)
    together(*[lambda n=n: run_case(begun.manager(n), case) for n in "ab"])


class Apart:
    """A replica of DiLoCo with three fragments; weights of its own until it learns."""

    def __init__(self, run, name, seed=0, **options):
        self.name, self.net = name, Net(seed)
        parameters = list(self.net.parts)
        fragments = [torch.nn.ParameterList(parameters[n : n + 2]) for n in (0, 2, 4)]
        self.inner = torch.optim.AdamW(parameters, lr=0.05)
        outers = [torch.optim.SGD(f.parameters(), lr=0.7, momentum=0.9) for f in fragments]
        self.manager = run.manager(name, **options)
        self.diloco = DiLoCo(
            self.manager,
            fragments,
            self.inner,
            outers,
            sync_every=7,
            fragment_sync_delay=1,
            fragment_update_alpha=0.5,
        )

    def walk(self, num_outer):
        """Train until so many outer steps are committed; return where the fragments stand."""
        with self.diloco:
            step = 0
            while self.manager.current_step() < num_outer:
                train(self.net, self.inner, range(step, step + 1), ord(self.name))
                step += 1
        return self.backups()

    def learned(self):
        """Return a list that fills with the places in the schedule that it learns."""
        found, machine = [], self.diloco._steps._machine
        handle = machine.handle

        def listen(event):
            orders = handle(event)
            if isinstance(event, Learned):
                found.append((machine.num_outer, machine.num_inner))
            return orders

        machine.handle = listen
        return found

    def backups(self):
        shared = self.diloco._steps._shared()
        return torch.cat([b.flatten() for each in shared["fragments"] for b in each["backup"]])


@pytest.mark.parametrize("asynchronous", [True, False])
def test_replicas_that_begin_with_different_weights_begin_with_the_same(run, asynchronous):
    begun = run(2)
    pair = [
        Apart(begun, name, seed, use_async_quorum=asynchronous)
        for name, seed in (("a", 0), ("b", 5))
    ]
    ends = together(*[lambda r=r: r.walk(6) for r in pair])
    assert torch.equal(*ends)
    assert pair[0].manager.batches_committed() == 12


def test_one_that_joins_late_learns_all_and_those_that_differ_are_found(run):
    begun = run(2)
    a, b = (Apart(begun, name) for name in "ab")
    together(*[lambda r=r: r.walk(4) for r in (a, b)])
    late = Apart(begun, "c", seed=9)
    learned = late.learned()
    ends = together(*[lambda r=r: r.walk(24) for r in (a, b, late)])
    assert all(torch.equal(each, ends[0]) for each in ends)
    assert learned
    assert learned[-1][0] >= 4
    assert 48 < a.manager.batches_committed() == late.manager.batches_committed()


def test_what_replicas_have_apart_is_learned_from_one_of_them(donors, secret):
    """Striped over two, the weights would be pieces of either, and those of neither."""
    sites, states = donors(2), []
    for number, (manager, site) in enumerate(zip(managers(2), sites, strict=True)):
        net = torch.nn.Linear(1000, 2000, bias=False)
        net.weight.data.fill_(float(number))
        optimizers = [torch.optim.SGD(net.parameters(), lr=1.0) for _ in range(2)]
        DiLoCo(manager, [net], *optimizers, sync_every=1)
        states.append(flatten(manager.state_fns["local"][1]()))
        site.server.publish(5, states[-1])
    into = {}

    def room(wanted):
        into.update({e.name: torch.empty(e.shape, dtype=getattr(torch, e.dtype)) for e in wanted})
        return into

    report = fetch(addresses(sites), secret, 5, into=room, deadline=soon())
    assert [same(into, each) for each in states].count(True) == 1
    assert sorted(map(bool, report.bytes_by_donor.values())) == [False, True]


def test_a_backup_that_differs_is_found_by_the_vote_and_healed(run):
    begun = run(3)
    made = [Apart(begun, name) for name in "abc"]
    together(*[lambda r=r: r.walk(3) for r in made])
    made[1].diloco._steps._fragments[0]._backup[0] += 1.0
    ends = together(*[lambda r=r: r.walk(9) for r in made])
    assert all(torch.equal(each, ends[0]) for each in ends)


def test_local_sgd_averages_over_the_real_manager(run):
    begun = run(2)

    def average(name):
        net = Scalar()
        optimizer = torch.optim.SGD(net.parameters(), lr=1.0)
        manager = begun.manager(name)
        with LocalSGD(manager, net, optimizer, sync_every=2):
            for _ in range(6):
                net.w.grad = torch.tensor(float(ord(name) - ord("a")))
                optimizer.step()
        return manager.current_step(), net.w.item(), weights(net).item()

    assert together(*[lambda n=n: average(n) for n in "ab"]) == [(3, -2.0, -2.0)] * 2
