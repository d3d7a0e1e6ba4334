"""Optimisers do without torch's compiler until something compiles, and then compile as ever."""

import json
import subprocess
import sys

import pytest

_TRAIN = """
import json, sys
import torch
from danaus.ft import defer_compiler

def trained(optimizer, model, num_steps, stepped=None):
    for number in range(num_steps):
        torch.manual_seed(number)
        optimizer.zero_grad()
        model(torch.randn(4, 8)).square().sum().backward()
        (stepped or optimizer.step)()

def made(kind):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU(), torch.nn.Linear(8, 1))
    return model, getattr(torch.optim, kind)(model.parameters(), lr=0.1)

def bits(model):
    return [parameter.tolist() for parameter in model.parameters()]

def is_there():
    return "torch._dynamo" in sys.modules
"""

_KINDS = ("AdamW", "SGD", "RMSprop", "Adagrad")

_PLAIN = f"""
found = []
for kind in {_KINDS}:
    model, optimizer = made(kind)
    trained(optimizer, model, 3)
    optimizer.load_state_dict(optimizer.state_dict())
    found.append(bits(model))
print(json.dumps([is_there(), found]))
"""

_COMPILED = """
model, optimizer = made("AdamW")
trained(optimizer, model, 2)
before = is_there()
compiled = torch.compile(model, backend="eager")
step = torch.compile(optimizer.step, backend="eager")
cleared = torch.compile(optimizer.zero_grad, backend="eager")
trained(optimizer, compiled, 2, step)
cleared()
trained(optimizer, compiled, 2, step)
from torch._dynamo.utils import counters
told = {name: dict(counts) for name, counts in counters.items()}
print(json.dumps([before, bits(model), told]))
"""

_CALL = "defer_compiler()\n"
_OTHER_TORCH = """
home = sys.modules["torch.optim.optimizer"]
del home._use_grad_for_differentiable
torch.optim.Optimizer.zero_grad = torch.optim.Optimizer.zero_grad.__wrapped__
"""


def _start(*parts: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", "".join((_TRAIN, *parts))]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def _said(*programs: subprocess.Popen[str]) -> list[list]:
    """Return what each says, in the end."""
    try:
        return [json.loads(program.communicate(timeout=50)[0]) for program in programs]
    finally:
        for program in programs:
            program.kill()
            program.communicate()


@pytest.fixture(scope="module")
def usual() -> list[list]:
    """Return what comes out without the call, plain and compiled."""
    return _said(_start(_PLAIN), _start(_COMPILED))


def test_optimizers_leave_the_compiler_alone_and_step_as_they_do_with_it(usual):
    (deferred,) = _said(_start(_CALL, _PLAIN))
    assert deferred == [False, usual[0][1]]
    assert usual[0][0]


def test_what_is_compiled_later_is_what_would_have_been_compiled(usual):
    deferred, late = _said(_start(_CALL, _COMPILED), _start("made('SGD')\n", _CALL, _COMPILED))
    assert deferred == [False, *usual[1][1:]]
    assert late == usual[1]
    assert late[0]
    assert late[2]["graph_break"]


def test_with_a_torch_that_goes_another_way_it_changes_nothing(usual):
    (other,) = _said(_start(_OTHER_TORCH, _CALL, _CALL, _PLAIN))
    assert other == usual[0]
