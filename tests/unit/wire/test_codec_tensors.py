"""Tensors travel like arrays: from their memory to memory that the received tensor owns (W-1)."""

from __future__ import annotations

import pytest

from danaus.wire.codec import own, pack, unpack
from danaus.wire.frame import Buffer, FrameParser, Kind, encode_head, flat

torch = pytest.importorskip("torch")


def carried(value: object) -> tuple[list[Buffer], object]:
    parts = pack(value)
    flats = [flat(part) for part in parts]
    (frame,) = FrameParser("peer").feed(b"".join([encode_head(Kind.MESSAGE, flats), *flats]))
    return parts, unpack(frame.parts)


@pytest.mark.parametrize(
    "dtype", ["float32", "float64", "bfloat16", "float16", "int64", "uint8", "bool", "complex64"]
)
def test_every_kind_of_number_comes_back(dtype: str) -> None:
    sent = torch.arange(5000).reshape(50, 100).to(getattr(torch, dtype))
    parts, got = carried(sent)
    assert len(parts) == 2
    assert len(parts[0]) < 500
    assert got.dtype == sent.dtype
    assert torch.equal(got, sent)


def test_nothing_is_copied_on_the_way_out() -> None:
    tensor = torch.zeros(10_000)
    parts = pack(tensor)
    kept = own(pack(tensor))
    tensor.fill_(1)
    assert unpack([bytearray(part) for part in parts]).sum() == 10_000
    assert unpack(kept).sum() == 0


def test_the_received_tensor_owns_its_memory() -> None:
    tensor = torch.zeros(10_000)
    _, got = carried(tensor)
    got.fill_(3)
    assert tensor.sum() == 0


def test_views_travel_without_what_they_view() -> None:
    base = torch.arange(1_000_000)
    for view in (base[10:5000], base.reshape(1000, 1000).t()[:3], base[::7][:2000]):
        parts, got = carried(view)
        assert sum(len(flat(part)) for part in parts) < view.numel() * 8 + 1000
        assert torch.equal(got, view)


@pytest.mark.parametrize("shape", [(), (0,), (0, 3), (1,), (2, 0, 5)])
def test_small_and_empty_tensors_come_back_writable(shape: tuple[int, ...]) -> None:
    sent = torch.ones(shape)
    _, got = carried(sent)
    assert got.shape == sent.shape
    assert torch.equal(got, sent)
    got.add_(1)


def test_parameters_and_gradients_keep_their_nature() -> None:
    parameter = torch.nn.Parameter(torch.ones(4000))
    leaf = torch.ones(4000, requires_grad=True)
    _, (got_parameter, got_leaf, derived) = carried((parameter, leaf, leaf * 2))
    assert type(got_parameter) is torch.nn.Parameter
    assert got_parameter.requires_grad
    assert got_leaf.requires_grad
    assert torch.equal(derived.detach(), leaf.detach() * 2)


def test_the_same_tensor_twice_stays_one() -> None:
    tensor = torch.ones(4000)
    parts, (a, b) = carried([tensor, tensor])
    assert len(parts) == 2
    assert a is b


def test_modules_and_states_come_back() -> None:
    module = torch.nn.Linear(30, 50)
    _, got = carried({"module": module, "state": module.state_dict()})
    assert torch.equal(got["module"].weight, module.weight)
    assert torch.equal(got["state"]["bias"], module.bias)


def test_what_is_not_dense_goes_torchs_own_way() -> None:
    sparse = torch.eye(30).to_sparse()
    conj = torch.ones(2000, dtype=torch.complex64).conj()
    _, (got_sparse, got_conj) = carried((sparse, conj))
    assert torch.equal(got_sparse.to_dense(), torch.eye(30))
    assert torch.equal(got_conj.resolve_conj(), conj.resolve_conj())
