"""When a fault strikes inside a worker, how often, and what is written down of it."""

from types import SimpleNamespace

import pytest
import torch

from danaus.app import chaos_inside
from danaus.app.chaos_inside import Inside, make_inside
from danaus.app.chaos_spec import read
from danaus.app.events import Event
from danaus.core import journal
from danaus.ft.observer import Moment, Observer
from danaus.ft.place import Place
from danaus.wire.position import Phase


class Work:
    """A state of three numbers, of which the gradient is the sum of what was asked for."""

    def __init__(self, incarnation=0, rank=0):
        self.place = Place("replica-1", rank, 2, incarnation, "", "", "")
        self.tensors = {"model.w": torch.ones(3), "optim.exp_avg.w": torch.zeros(3)}

    def state(self):
        return self.tensors

    def compute_leaf(self, step, microbatches):
        return torch.full((3,), float(sum(microbatches)))


@pytest.fixture
def lines(tmp_path, monkeypatch):
    """Return a function that reads the journal of the run that the worker is of."""
    (tmp_path / "control").mkdir()
    told = SimpleNamespace(proc=SimpleNamespace(run_dir=str(tmp_path)))
    monkeypatch.setattr(chaos_inside, "context", lambda: told)
    return lambda: journal.read(tmp_path / "journal.jsonl")


def steps(observer, *numbers):
    for step in numbers:
        observer.entered(step, Phase.COMPUTE, 0)


def test_a_planned_fault_strikes_once_from_its_step_on_and_is_written_down(lines):
    work = Work()
    inside = make_inside(read("flip_bit:at_step=5,replica=1"))(work)
    steps(inside, 3, 4)
    assert torch.equal(work.tensors["model.w"], torch.ones(3))
    steps(inside, 6, 7)
    assert (work.tensors["model.w"] != 1).tolist() == [True, False, False]
    (line,) = lines()
    assert (line["event"], line["step"], line["where"]) == (Event.FAULT_INJECTED, 6, "compute")
    assert line["text"] == "one bit of model.w flipped in replica-1 (replica-1/0#0, step 6)"
    assert line["spec"] == "flip_bit:replica=1,at_step=5"


def test_a_later_life_of_the_same_process_is_not_struck_again(lines):
    for incarnation in range(3):
        work = Work(incarnation)
        steps(make_inside(read("flip_bit:where=optimizer,at_step=1"))(work), 1, 2)
        assert bool(work.tensors["optim.exp_avg.w"].any()) == (incarnation == 0)
    assert len(lines()) == 1


@pytest.mark.parametrize(("spec", "rank"), [("segv:replica=0", 0), ("segv:rank=1", 0), ("segv", 1)])
def test_others_are_not_struck(lines, spec, rank):
    assert type(make_inside(read(spec))(Work(rank=rank))) is Observer


def test_what_is_made_later_is_struck_when_it_is_made(lines):
    work = Work()
    inside = Inside(work)
    inside.strike(read("nan:where=gradient"))
    assert work.compute_leaf(4, range(3)).tolist() == [3, 3, 3]
    steps(inside, 5)
    assert not lines()
    first, second = (work.compute_leaf(5, range(3)).isnan().tolist() for _ in range(2))
    assert (first, second) == ([True, False, False], [False] * 3)
    assert [line["step"] for line in lines()] == [5]


def test_a_moment_of_an_exchange_is_inside_of_it(lines, monkeypatch):
    reached = []
    inside = Inside(Work())
    monkeypatch.setattr(inside, "reach", lambda where, step: reached.append((where, step)))
    for phase, number in ((Phase.JOIN, 0), (Phase.REDUCE, 0), (Phase.REDUCE, 7), (Phase.VOTE, 8)):
        inside.entered(3, phase, number)
    inside.moment(Moment.VOTED, 3)
    assert reached == [("join", 3), ("reduce", 3), ("vote", 3), ("voted", 3)]


def test_what_cannot_be_done_inside_a_worker_is_written_down_as_missed_once(lines):
    for incarnation in range(2):
        inside = Inside(Work(incarnation))
        inside.strike(read("kill_host:host=0"))
        steps(inside, 3, 4)
    (missed,) = lines()
    assert (missed["event"], missed["target"]) == (Event.FAULT_MISSED, "replica-1")
    assert missed["reason"].startswith("kill_host cannot be done inside a worker: one of clock_j")


def test_what_a_disk_without_room_does_not_let_strike_is_missed_and_ends_nobody(lines, tmp_path):
    (tmp_path / "control").rmdir()  # nothing can be made there either
    inside = Inside(Work())
    inside.strike(read("flip_bit"))
    steps(inside, 3)
    (missed,) = lines()
    assert missed["event"] == Event.FAULT_MISSED
    assert "No such file" in missed["reason"]


def test_a_checkpoint_is_waited_for(lines, tmp_path):
    inside = Inside(Work(), (read("flip_bit:where=checkpoint,at_step=1"),))
    steps(inside, 1, 2)
    assert not lines()
    folder = tmp_path / "checkpoints" / "step-000002"
    folder.mkdir(parents=True)
    part = folder / "rank-0-of-1.safetensors"
    part.write_bytes(bytes(9))
    steps(inside, 3)
    assert part.read_bytes() == bytes((0, 0, 0, 0, 1, 0, 0, 0, 0))
    (line,) = lines()
    assert "step-000002" in line["text"]
