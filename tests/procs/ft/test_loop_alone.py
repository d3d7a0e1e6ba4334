"""``Loop`` alone with the quorum service: what a loop's body may do, and what it must not."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tests.procs.ft.loop_parts import bits_of, loss_of, network
from torch import nn

from danaus.core.errors import ConfigError, NoQuorum
from danaus.ft import Loop, Place, StepPlan

SOURCE = Path(__file__).parents[3] / "src"
PLAN = StepPlan(num_steps=6, num_leaves=2, leaf_size=2)


@pytest.fixture(autouse=True)
def _one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def service(tmp_path):
    """Return a function that starts a service, in the place of the last one."""
    started = []

    def start(*options):
        if started:
            end(started.pop())
        command = [sys.executable, "-m", "danaus.quorum.service", "--run", str(tmp_path), *options]
        environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
        started.append(subprocess.Popen(command, stdin=subprocess.PIPE, env=environment))

    def end(process):
        process.communicate(timeout=20.0)

    yield start
    end(started.pop())


@pytest.fixture
def place(service, tmp_path):
    """A place beside a service that waits for nobody else."""
    service()
    return Place.in_folder(tmp_path, "a")


def prepared(parameters):
    """An optimiser as people have them: clipped, and with a rate that follows the step."""
    optimizer = torch.optim.SGD(parameters, lr=0.1, momentum=0.9)

    def clip(optimizer, _args, _kwargs):
        nn.utils.clip_grad_norm_(optimizer.param_groups[0]["params"], 0.5)

    optimizer.register_step_pre_hook(clip)
    return optimizer


def train(model, place, plan=PLAN):
    with Loop(model, prepared(model.parameters()), place, plan=plan) as loop:
        for step in loop.steps():
            for microbatch in step.microbatches():
                step.backward(*loss_of(model, step.number, microbatch))


def set_rate(optimizer, step):
    optimizer.param_groups[0]["lr"] = 0.1 / step


def test_a_rate_and_clipping_give_the_bits_of_a_plain_loop(place):
    model = network()
    optimizer = prepared(model.parameters())
    losses = []
    with Loop(model, optimizer, place, plan=PLAN) as loop:
        for step in loop.steps():
            losses.append(loop.last_loss())
            set_rate(optimizer, step.number)
            for microbatch in step.microbatches():
                step.backward(*loss_of(model, step.number, microbatch))
        assert (loop.current_step(), loop.num_participants()) == (6, 1)
        losses.append(loop.last_loss())
    assert [math.isnan(loss) for loss in losses] == [True] + PLAN.num_steps * [False]

    other = network()
    optimizer = prepared(other.parameters())
    for number in range(1, PLAN.num_steps + 1):
        set_rate(optimizer, number)
        leaves, total = [], 0
        for leaf in range(PLAN.num_leaves):
            for microbatch in (2 * leaf, 2 * leaf + 1):
                loss, count = loss_of(other, number, microbatch)
                loss.backward()
                total += count
            leaves.append([parameter.grad for parameter in other.parameters()])
            other.zero_grad()
        for parameter, one, two in zip(other.parameters(), *leaves, strict=True):
            parameter.grad = (one + two) / total
        optimizer.step()
        optimizer.zero_grad()
    assert bits_of(model) == bits_of(other)


def test_a_refused_try_comes_again(place):
    model = network()
    tries = []
    with Loop(model, prepared(model.parameters()), place, plan=PLAN) as loop:
        for step in loop.steps():
            tries.append(step.number)
            for microbatch in step.microbatches():
                step.backward(*loss_of(model, step.number, microbatch))
                if len(tries) == 3:
                    step.refuse("the loop does not like it")
                    break
    assert tries == [1, 2, 3, 3, 4, 5, 6]


def test_a_loop_that_leaves_a_step_is_told_so(place):
    model = network()
    with Loop(model, prepared(model.parameters()), place, plan=PLAN) as loop:
        steps = loop.steps()
        next(next(steps).microbatches())
        with pytest.raises(ConfigError, match="left step 1 before all of it was computed"):
            next(steps)


def test_a_forward_that_changes_a_buffer_is_refused(place):
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
    with pytest.raises(ConfigError, match="a step that is discarded must leave no trace"):
        train(model, place)


def test_a_run_without_a_replica_begins_anew_once_the_service_is_told_to(place, service):
    undisturbed = network()
    train(undisturbed, place)
    model = network()
    service("--resume")
    with Loop(model, prepared(model.parameters()), incarnation(place, 1), plan=PLAN) as loop:
        for step in loop.steps():
            if step.number == 3:
                break
            for microbatch in step.microbatches():
                step.backward(*loss_of(model, step.number, microbatch))
    assert loop.current_step() == 2
    model = network()
    service("--resume")
    train(model, incarnation(place, 2))
    assert bits_of(model) == bits_of(undisturbed)


def test_one_that_comes_after_the_end_is_told_that_its_model_is_not_the_trained_one(
    place, tmp_path
):
    train(network(), place)
    with pytest.raises(NoQuorum, match="too late to learn its state; take the trained model"):
        train(network(), Place.in_folder(tmp_path, "b"))


def incarnation(place, number):
    return Place.in_folder(Path(place.secret_path).parent, "a", number)


def test_a_replica_of_several_ranks_is_refused(tmp_path):
    place = Place("a", 0, 2, 0, "unix:/q", str(tmp_path / "secret"), "unix:/a")
    model = network()
    with pytest.raises(ConfigError, match="one process"):
        Loop(model, prepared(model.parameters()), place, plan=PLAN)
