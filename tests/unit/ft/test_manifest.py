"""What a transfer carries, as values (H-2)."""

import msgspec
import pytest
import torch

from danaus.collectives.tensor_bytes import view_bytes
from danaus.core.errors import FrameDamaged
from danaus.ft.manifest import (
    HELLO_PREFIX,
    Chunk,
    Manifest,
    TensorFacts,
    Wanted,
    cut,
    difference,
    facts_of,
    pack_hello,
    pack_manifest,
    unpack_hello,
    unpack_manifest,
)
from danaus.ft.snapshot import SnapshotRoom

STATE = {
    "w": torch.arange(10.0),
    "b": torch.ones(3, 2, dtype=torch.bfloat16),
    "none": torch.empty(0),
    "step": torch.tensor(7),
}


def test_facts_are_sorted_by_name():
    assert facts_of(STATE) == (
        TensorFacts("b", "bfloat16", (3, 2)),
        TensorFacts("none", "float32", (0,)),
        TensorFacts("step", "int64", ()),
        TensorFacts("w", "float32", (10,)),
    )
    assert [facts.num_bytes for facts in facts_of(STATE)] == [12, 0, 8, 40]


def test_chunks_cover_each_byte_once_and_cross_no_tensor():
    manifest = Manifest(3, "", "", facts_of(STATE), chunk_bytes=16)
    assert cut(manifest) == (
        Chunk(0, 0, 12),
        Chunk(2, 0, 8),
        Chunk(3, 0, 16),
        Chunk(3, 16, 32),
        Chunk(3, 32, 40),
    )


def test_words_survive_the_wire():
    manifest = Manifest(3, "abc", "2.1", facts_of(STATE))
    assert unpack_manifest(pack_manifest(manifest), "a") == manifest
    for wanted in (Wanted(2**40), Wanted(7, "steps", 3, 9)):
        assert unpack_hello(pack_hello(wanted)) == wanted


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc1",
        pack_manifest(Manifest(1, "", "", (TensorFacts("w", "Tensor", (1,)),))),
        pack_manifest(Manifest(1, "", "", (TensorFacts("w", "float32", (-1,)),))),
        pack_manifest(Manifest(1, "", "", (), chunk_bytes=0)),
        msgspec.msgpack.encode({"step": "x"}),
    ],
)
def test_anything_else_is_no_manifest(data):
    with pytest.raises(FrameDamaged):
        unpack_manifest(data, "a")


@pytest.mark.parametrize(
    "hello", [b"", HELLO_PREFIX, pack_hello(Wanted(1)) + b"x", HELLO_PREFIX + b"\x91\x01x"]
)
def test_anything_else_is_no_hello(hello):
    with pytest.raises(FrameDamaged):
        unpack_hello(hello)


def test_a_difference_is_told_in_words():
    facts = facts_of(STATE)
    assert difference(facts, facts) == ""
    assert difference(facts, facts[1:]) == "b is missing"
    assert difference(facts[1:], facts) == "b is not wanted"
    other = facts_of({**STATE, "w": torch.zeros(11)})
    assert difference(facts, other) == "w is float32[11], not float32[10]"


def snapshot(room, state):
    return room.take(state, 3, note="", fingerprint="", on_served=None)


def test_a_snapshot_does_not_follow_the_state():
    state = {name: tensor.clone() for name, tensor in STATE.items()}
    taken = snapshot(SnapshotRoom(1 << 20), state)
    before = b"".join(bytes(taken.chunk_bytes(i)) for i in range(len(taken.chunks)))
    for tensor in state.values():
        tensor.zero_()
    assert b"".join(bytes(taken.chunk_bytes(i)) for i in range(len(taken.chunks))) == before
    assert before == b"".join(bytes(view_bytes(STATE[name])) for name in sorted(STATE))


def test_memory_for_copies_is_bounded_and_used_again():
    room = SnapshotRoom(300)  # one copy takes four times 64 bytes at most
    first, second = snapshot(room, STATE), snapshot(room, STATE)
    assert first.buffer is not None
    assert second.buffer is None  # lent
    address = first.buffer.data_ptr()
    room.give_back(first)
    room.give_back(second)
    again = snapshot(room, STATE)
    assert again.buffer.data_ptr() == address


def test_what_is_not_plain_memory_is_copied_even_without_room():
    assert snapshot(SnapshotRoom(0), {"w": torch.ones(4, 3).t()}).buffer is not None
    assert snapshot(SnapshotRoom(0), {"w": torch.ones(4, 3)}).buffer is None


def test_there_is_room_by_default():
    assert SnapshotRoom().room_bytes > 1 << 20
