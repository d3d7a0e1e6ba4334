"""States as tensors with names, and back."""

from collections import Counter, OrderedDict

import pytest
import torch
from torch import nn

from danaus.collectives.fingerprint import fingerprint
from danaus.core.errors import ConfigError
from danaus.ft.state_tree import SKELETON, flatten, unflatten


def there_and_back(tree):
    named = flatten(tree)
    copied = {name: tensor.clone() for name, tensor in named.items()}
    return unflatten(copied, {})


def test_a_model_and_its_optimiser_come_back_and_load():
    model = nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(model.parameters(), amsgrad=True)
    rate = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    rate.step()
    tree = {"m": model.state_dict(), "o": optimizer.state_dict(), "r": rate.state_dict()}
    back = there_and_back(tree)
    other = nn.Linear(3, 2)
    fresh = torch.optim.AdamW(other.parameters())
    other.load_state_dict(back["m"])
    fresh.load_state_dict(back["o"])
    torch.optim.lr_scheduler.StepLR(fresh, 9).load_state_dict(back["r"])
    again = {"m": other.state_dict(), "o": fresh.state_dict(), "r": rate.state_dict()}
    assert fingerprint(flatten(again)) == fingerprint(flatten(tree))


@pytest.mark.parametrize(
    "leaf",
    [None, True, -3, 2**63, -(2**63), 2**64, -(2**90), 1.5, "text", b"\0bytes", (), [], {},
     torch.bfloat16, (1, [2, (3,)]), {1: "a", "1": "b", None: 0, 2.5: 3}],
)  # fmt: skip
def test_what_is_no_tensor_comes_back_as_it_was(leaf):
    back = there_and_back({"leaf": leaf})["leaf"]
    assert back == leaf
    assert type(back) is type(leaf)


def test_mappings_of_other_kinds_come_back_as_dictionaries():
    assert there_and_back(OrderedDict(b=1, a=Counter("xx"))) == {"b": 1, "a": {"x": 2}}


def test_the_order_of_keys_changes_no_bit():
    one, two = torch.ones(2), torch.zeros(3)
    first = flatten({"a": one, "b": {"x": two, "y": 1}})
    second = flatten({"b": {"y": 1, "x": two}, "a": one})
    assert fingerprint(first) == fingerprint(second)


def test_a_number_that_differs_changes_the_fingerprint():
    assert fingerprint(flatten({"lr": 0.1})) != fingerprint(flatten({"lr": 0.1 + 2**-55}))


def test_tensors_are_the_live_ones():
    tensor = torch.ones(2, requires_grad=True)
    named = flatten({"deep": [{"er": tensor}]})
    assert named["deep/[0]/er"].data_ptr() == tensor.data_ptr()
    assert set(named) == {"deep/[0]/er", SKELETON}


@pytest.mark.parametrize(
    ("tree", "said"),
    [
        ({"a": {"b": {1, 2}}}, r"builtins\.set at a/b"),
        ({"a": [object()]}, r"builtins\.object at a/\[0\]"),
        ({"a": {(1, 2): 3}}, r"a key \(1, 2\) at a"),
        ({"x/y": torch.ones(1), "x": {"y": torch.ones(1)}}, "both called x/y"),
        ({"skeleton": torch.ones(1)}, "both called skeleton"),
    ],
)
def test_what_cannot_travel_is_named(tree, said):
    with pytest.raises(ConfigError, match=said):
        flatten(tree)
