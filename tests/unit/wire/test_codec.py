"""Values to bytes and back (W-1)."""

from __future__ import annotations

import copyreg
import pickle
import sys
import traceback
import types
from collections.abc import Callable

import cloudpickle
import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from danaus.core.errors import FrameDamaged
from danaus.wire.codec import Codec, own, pack, unpack
from danaus.wire.frame import MAX_PARTS, Buffer, FrameParser, Kind, encode_head, flat


class Ask(msgspec.Struct, frozen=True, tag="ask"):
    words: str
    number: int = 0


class Tell(msgspec.Struct, frozen=True, tag="tell"):
    value: bytes


CODEC: Codec[Ask | Tell] = Codec(Ask | Tell)


def carried(parts: list[Buffer]) -> list[bytearray]:
    """Return the parts as a receiver gets them."""
    flats = [flat(part) for part in parts]
    stream = b"".join([encode_head(Kind.MESSAGE, flats), *flats])
    (frame,) = FrameParser("peer").feed(stream)
    return frame.parts


def address_of(part: Buffer) -> int:
    return int(np.frombuffer(part, np.uint8).__array_interface__["data"][0])


def test_structs_arrive_as_what_they_were() -> None:
    for message in (Ask("how many", 3), Tell(b"\0\1")):
        assert CODEC.decode(CODEC.encode(message)) == message
        assert CODEC.decode(bytearray(CODEC.encode(message))) == message


@given(st.binary(max_size=100))
def test_garbage_is_damage_that_names_the_peer(garbage: bytes) -> None:
    try:
        CODEC.decode(garbage, "that one")
    except FrameDamaged as damage:
        assert damage.peer == "that one"  # noqa: PT017


def test_what_is_not_of_the_union_is_damage() -> None:
    for value in ({"type": "other"}, {"type": "ask"}, {"type": "ask", "words": 3}, [1], None):
        with pytest.raises(FrameDamaged):
            CODEC.decode(msgspec.msgpack.encode(value))
    with pytest.raises(FrameDamaged):
        CODEC.decode(b"\x81" * 100_000)


@pytest.mark.parametrize(
    "value", [None, 1, "text", (("a", [1, 2.5]), {"k": {1, 2}}), b"x" * 100_000, [b"", {}]]
)
def test_plain_values_come_back(value: object) -> None:
    assert unpack(carried(pack(value))) == value


def test_an_array_goes_from_its_memory_to_memory_of_the_receiver() -> None:
    array = np.arange(100_000, dtype=np.float32).reshape(100, 1000)
    parts = pack({"a": array, "n": 3})
    assert len(parts) == 2
    assert len(parts[0]) < 1000
    assert address_of(parts[1]) == array.__array_interface__["data"][0]
    got_parts = carried(parts)
    got = unpack(got_parts)
    assert np.array_equal(got["a"], array)
    assert got["a"].flags.writeable
    assert address_of(got_parts[1]) == got["a"].__array_interface__["data"][0]
    got["a"][0, 0] = 9
    assert array[0, 0] == 0


def test_arrays_of_any_kind_come_back() -> None:
    grid = np.arange(40_000).reshape(200, 200)
    arrays = [grid, grid.T, grid[::2, ::3], np.empty((0, 3)), np.float64(3), np.arange(3)]
    for got, sent in zip(unpack(carried(pack(arrays))), arrays, strict=True):
        assert np.array_equal(got, sent)


def test_more_buffers_than_a_frame_holds_still_go() -> None:
    arrays = [np.full(600, n) for n in range(MAX_PARTS + 100)]
    parts = pack(arrays)
    assert len(parts) <= MAX_PARTS
    assert all(np.array_equal(a, b) for a, b in zip(unpack(carried(parts)), arrays, strict=True))


def test_owned_parts_do_not_follow_the_array() -> None:
    array = np.zeros(10_000)
    borrowed, kept = pack(array), own(pack(array))
    array[:] = 1
    assert unpack(carried(borrowed))[0] == 1
    assert unpack(carried(kept))[0] == 0


def test_functions_and_local_classes_go_by_value() -> None:
    offset = 5

    class Local:
        def __init__(self) -> None:
            self.array = np.arange(10_000)

        def add(self, n: int) -> int:
            return n + offset

    parts = pack((lambda n: n * offset, Local()))
    assert len(parts) == 2  # out of band all the same
    function, thing = unpack(carried(parts))
    assert (function(2), thing.add(2), thing.array[7]) == (10, 7, 7)


def test_what_goes_by_value_still_says_which_file_it_is_of() -> None:
    def outer() -> Callable[[], int]:
        def inner() -> int:
            raise LookupError

        return inner

    arrived = unpack(pack(outer))
    assert arrived.__code__.co_filename == arrived().__code__.co_filename == __file__
    with pytest.raises(LookupError) as raised:
        arrived()()
    assert "raise LookupError" in "".join(traceback.format_exception(raised.value))


def test_what_stands_in_main_goes_by_value() -> None:
    main = sys.modules["__main__"]
    scope: dict[str, object] = {"__name__": "__main__"}
    exec("class Mine:\n    n = 7\ndef mine(): return Mine.n", scope)
    main.Mine, main.mine = scope["Mine"], scope["mine"]  # type: ignore[attr-defined]
    try:
        parts = own(pack((scope["mine"], scope["Mine"]())))
    finally:
        del main.Mine, main.mine  # type: ignore[attr-defined]
    function, thing = unpack(parts)
    assert (function(), thing.n) == (7, 7)


def test_modules_registered_by_value_go_by_value() -> None:
    module = types.ModuleType("a_module_of_here_only")
    sys.modules[module.__name__] = module
    exec("def seven(): return 7", module.__dict__)
    cloudpickle.register_pickle_by_value(module)
    try:
        parts = pack(module.seven)
    finally:
        cloudpickle.unregister_pickle_by_value(module)
        del sys.modules[module.__name__]
    assert unpack(parts)() == 7


def test_what_cannot_be_pickled_says_so() -> None:
    with pytest.raises(TypeError, match="pickle"):
        pack(sys._getframe())


class Registered:
    def __init__(self, n: int) -> None:
        self.n = n


def test_reducers_registered_by_others_are_used() -> None:
    copyreg.pickle(Registered, lambda each: (Registered, (each.n + 1,)))
    try:
        assert unpack(pack(Registered(1))).n == 2
    finally:
        del copyreg.dispatch_table[Registered]


def test_errors_come_back_whole() -> None:
    got = unpack(carried(pack(FrameDamaged("peer", "why"))))
    assert isinstance(got, FrameDamaged)
    assert got.facts() == {"peer": "peer", "why": "why"}
    assert pickle.loads(pack(ValueError("x"))[0]).args == ("x",)


def test_large_bytes_of_a_call_travel_as_buffers_of_their_own() -> None:
    large, shared = b"x" * 100_000, [1]
    value = ((large, shared, "a"), {"key": large, "same": shared})
    parts = pack(value)
    assert [len(part) for part in parts[1:]] == [len(large)] * 2
    (first, again, _), kwargs = got = unpack(carried(parts))
    assert got == value
    assert type(first) is bytes
    assert again is kwargs["same"]


def test_what_holds_no_large_bytes_keeps_what_it_shares() -> None:
    shared = {"a": b"small"}
    one, other = unpack(carried(pack((shared, shared, [object]))))[:2]
    assert one is other == shared
