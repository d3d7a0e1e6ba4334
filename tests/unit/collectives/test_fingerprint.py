"""Q-9 and T-1: one bit tells."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from danaus.collectives.fingerprint import Fingerprints, digest, fingerprint
from danaus.collectives.tensor_bytes import view_bytes
from danaus.core.errors import ConfigError

DTYPES = [
    torch.float32,
    torch.float64,
    torch.bfloat16,
    torch.float16,
    torch.int64,
    torch.uint8,
    torch.complex64,
]


def state(dtype=torch.float32, size=7):
    values = torch.arange(size * 2).reshape(2, size).to(dtype)
    return {"b.weight": values, "a.bias": torch.ones(3), "step": torch.tensor(4.0)}


@given(st.sampled_from(DTYPES), st.integers(1, 9), st.data())
def test_any_flipped_bit_changes_it(dtype, size, data):
    named = state(dtype, size)
    before = fingerprint(named)
    name = data.draw(st.sampled_from(sorted(named)))
    view = view_bytes(named[name])
    at = data.draw(st.integers(0, len(view) - 1))
    view[at] ^= 1 << data.draw(st.integers(0, 7))
    assert fingerprint(named) != before
    assert len(before) == 16


def test_it_depends_on_bits_names_and_shapes_only():
    named = state()
    assert fingerprint(named) == fingerprint(dict(reversed(list(state().items()))))
    assert fingerprint(named) != fingerprint({**named, "more": torch.zeros(1)})
    renamed = {f"{name}x": value for name, value in named.items()}
    assert fingerprint(named) != fingerprint(renamed)
    flat = {**named, "b.weight": named["b.weight"].reshape(-1)}
    assert fingerprint(named) != fingerprint(flat)
    assert fingerprint({"a": torch.tensor([0.0])}) != fingerprint({"a": torch.tensor([-0.0])})


def test_empty_boolean_strided_and_scalar_tensors_have_one():
    mask = torch.tensor([True, False, True])
    assert fingerprint({"mask": mask}) != fingerprint({"mask": ~mask})
    wide = torch.arange(12.0).reshape(3, 4)
    assert fingerprint({"w": wide.t()}) == fingerprint({"w": wide.t().contiguous()})
    assert fingerprint({}) == fingerprint({})
    assert len(fingerprint({"none": torch.empty(0)})) == 16


def test_it_is_the_same_wherever_the_tensor_begins():
    flat = torch.arange(101.0)
    views = [flat[start : start + 9].clone() for start in range(4)]
    assert [fingerprint({"w": flat[start : start + 9]}) for start in range(4)] == [
        fingerprint({"w": view}) for view in views
    ]


def test_digest_sees_every_bit():
    flat = torch.arange(1000.0)
    before = digest(flat)
    view_bytes(flat)[1234] ^= 1
    assert digest(flat) != before
    assert len(before) == 16


def test_views_share_memory_and_keep_it_alive():
    view = view_bytes(torch.zeros(4))
    view[0:4] = b"\0\0\x80\x3f"
    tensor = torch.zeros(4)
    view_bytes(tensor)[4:8] = b"\0\0\x80\x3f"
    assert tensor.tolist() == [0.0, 1.0, 0.0, 0.0]
    assert len(view_bytes(torch.empty(0))) == 0


def test_only_plain_memory_has_a_view():
    with pytest.raises(ConfigError):
        view_bytes(torch.zeros(3, 4).t())


def test_a_state_taken_again_and_again_is_seen_as_it_is_each_time():
    taken, named = Fingerprints(), state()
    assert taken.of(named) == fingerprint(named)
    named["b.weight"][1, 3] += 1.0  # the same memory with other bits
    assert taken.of(named) == fingerprint(named)
    named["b.weight"] = named["b.weight"].clone()[:, :5]  # other memory, another shape, strides
    assert taken.of(named) == fingerprint(named)
    square = torch.arange(9.0).reshape(3, 3)
    assert taken.of({"w": square}) == fingerprint({"w": square})
    square.t_()  # nothing has moved, and yet it is another tensor
    assert taken.of({"w": square}) == fingerprint({"w": square.contiguous()})
    assert taken.of({}) == fingerprint({})
