"""Values to bytes and back: typed control messages, and users' objects (W-1).

``Codec`` speaks for a closed union of tagged ``msgspec`` structs.  ``pack`` and ``unpack`` carry
anything that pickles: protocol 5 with buffers out of band, so that an array's bytes go from its
own memory to the connection and arrive in memory that the received array owns.

Invariants:
    ``unpack`` runs what the sender chose: it is for bytes of a peer that has proven itself (W-2).
    The parts that ``pack`` returns borrow the object's memory: leave it alone until the message
    is acknowledged, or take ``own(parts)``.
"""

from __future__ import annotations

import collections
import copyreg
import ctypes
import importlib
import io
import operator
import pickle
import sys
import types
from collections.abc import Sequence
from typing import Any, ClassVar, Generic, TypeVar

import cloudpickle
import msgspec

from danaus.core.errors import FrameDamaged
from danaus.wire.frame import MAX_PARTS, Buffer

T = TypeVar("T")

# Below this size a buffer's own entry in the frame costs more than copying it.
_IN_BAND_BYTES = 2048
_PROTOCOL = 5
_MAX_BUFFERS = MAX_PARTS - 64  # leaves room for a caller's own parts


class Codec(Generic[T]):
    """Encodes and decodes the members of one union of tagged structs.

    Args:
        union: ``A | B | ...``, each a ``msgspec.Struct`` with a tag of its own.
    """

    def __init__(self, union: Any) -> None:
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder: msgspec.msgpack.Decoder[T] = msgspec.msgpack.Decoder(union)

    def encode(self, message: T) -> bytes:
        """Return the bytes of ``message``."""
        return self._encoder.encode(message)

    def decode(self, data: Buffer, peer: str = "peer") -> T:
        """Return the message that ``data`` holds.

        Raises:
            FrameDamaged: It holds none of this union; the message names ``peer``.
        """
        try:
            return self._decoder.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise FrameDamaged(peer, f"not a known message: {error}") from error


def pack(value: object) -> list[Buffer]:
    """Return ``value`` as parts of a frame; the first is the pickle, the rest are its buffers.

    What plain pickle can only name in ``__main__``, or not at all (lambdas, local classes), goes
    by value with cloudpickle.  Arrays and tensors that do not lie contiguously are copied.

    Raises:
        Exception: Whatever pickling ``value`` raises.
    """
    if _is_plain(value):
        return [pickle.dumps(value, _PROTOCOL)]
    value = _with_large_apart(value)
    if not cloudpickle.list_registry_pickle_by_value():
        try:
            parts = _dump(value, pickle.Pickler)
        except (pickle.PicklingError, AttributeError, TypeError):
            pass  # cloudpickle knows more; what it cannot do either, it says
        else:
            # Globals of __main__ are other things, or nothing, in the process that unpickles.
            if b"__main__" not in parts[0]:
                return parts
    return _dump(value, _ByValue)


def pack_call(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Buffer]:
    """Return ``(args, kwargs)`` as ``pack`` does."""
    if not kwargs and len(args) <= _PLAIN_LENGTH:
        # Spelled out: every call comes by, and mostly it is one short word, known without a call.
        for value in args:
            kind = type(value)
            if (kind is bytes or kind is str) and len(value) <= _PLAIN_LENGTH:
                continue
            if kind not in _PLAIN and not _is_plain(value):
                break
        else:
            return [pickle.dumps((args, kwargs), _PROTOCOL)]
    return pack((args, kwargs))


def unpack(parts: Sequence[Buffer]) -> Any:
    """Return the object that ``pack`` was given; its buffers are ``parts[1:]`` themselves.

    Raises:
        Exception: Whatever unpickling raises: modules that are missing here, the object's own.
    """
    if len(parts) == 1:
        return pickle.loads(parts[0])
    return pickle.loads(parts[0], buffers=parts[1:])


def _is_plain(value: Any) -> bool:
    """Tell whether ``value`` is of Python's own types through and through, and small.

    Such a value has no buffers and no names, and pickles in a tenth of the time.
    """
    kind = type(value)
    if kind is bytes or kind is str:
        return len(value) <= _PLAIN_LENGTH
    if kind is tuple:
        if len(value) > _PLAIN_LENGTH:
            return False
        return _PLAIN.issuperset(map(type, value)) or all(map(_is_plain, value))
    return kind in _PLAIN or (kind is dict and not value)


class _Large:
    """``bytes`` that are to travel as a buffer: pickle itself would copy them, three times."""

    def __init__(self, value: bytes) -> None:
        self._value = value

    def __reduce_ex__(self, protocol: Any) -> Any:
        return bytes, (pickle.PickleBuffer(self._value),)


def _with_large_apart(value: Any) -> Any:
    """Return ``value`` with the large ``bytes`` in its outer tuples and dicts marked."""
    kind = type(value)
    if kind is bytes and len(value) >= _LARGE_BYTES:
        return _Large(value)
    if kind is tuple and value:
        marked = tuple(_with_large_apart(each) for each in value)
        return value if all(map(operator.is_, marked, value)) else marked
    if kind is dict and value:
        apart = {key: _with_large_apart(each) for key, each in value.items()}
        return value if all(map(operator.is_, apart.values(), value.values())) else apart
    return value


_LARGE_BYTES = 64 * 1024
_PLAIN = frozenset({int, float, bool, type(None), complex})
_PLAIN_LENGTH = 1024


P = TypeVar("P")


def own(parts: Sequence[P]) -> list[P | bytes]:
    """Return the parts with every borrowed buffer copied."""
    return [bytes(part) if isinstance(part, bytearray | memoryview) else part for part in parts]


def _dump(value: object, pickler_class: type[pickle.Pickler]) -> list[Buffer]:
    buffers: list[Buffer] = []

    def take(buffer: pickle.PickleBuffer) -> bool:
        """Keep a buffer out of band; true puts it into the pickle instead."""
        try:
            view = buffer.raw()
        except BufferError:  # not contiguous
            return True
        if view.nbytes < _IN_BAND_BYTES or len(buffers) >= _MAX_BUFFERS:
            return True
        buffers.append(view)
        return False

    if "torch" in sys.modules:
        pickler_class = _knowing_tensors(pickler_class)
    file = io.BytesIO()
    pickler_class(file, protocol=_PROTOCOL, buffer_callback=take).dump(value)
    return [file.getvalue(), *buffers]


def _reduce_code(code: types.CodeType) -> Any:
    """Reduce code as cloudpickle does, but let it say which file it is of.

    Tracebacks and debuggers elsewhere then find its lines, where they have the file.
    """
    make, arguments, *rest = _CODE_BY_VALUE(code)
    named = (code.co_filename if each == _NAMELESS else each for each in arguments)
    return make, tuple(named), *rest


_CODE_BY_VALUE = cloudpickle.Pickler.dispatch_table[types.CodeType]
_NAMELESS = "<dynamic-code>"


class _ByValue(cloudpickle.Pickler):  # type: ignore[misc]
    """What is defined in ``__main__`` or in a function, by value."""

    dispatch_table: ClassVar[Any] = collections.ChainMap(
        {types.CodeType: _reduce_code}, cloudpickle.Pickler.dispatch_table
    )


_tensor_picklers: dict[type[pickle.Pickler], type[pickle.Pickler]] = {}


def _knowing_tensors(base: type[pickle.Pickler]) -> type[pickle.Pickler]:
    if base in _tensor_picklers:
        return _tensor_picklers[base]
    known = getattr(base, "dispatch_table", copyreg.dispatch_table)
    table = collections.ChainMap({sys.modules["torch"].Tensor: _reduce_tensor}, known)
    # On the class: the C pickler looks there, and subclasses hide the instance's.
    made = type("TensorPickler", (base,), {"dispatch_table": table})
    return _tensor_picklers.setdefault(base, made)


def _reduce_tensor(tensor: Any) -> Any:
    """Reduce a plain CPU tensor to its bytes, out of band.

    torch's own reduction copies the storage, the whole of it, into the pickle.  What is not a
    dense CPU tensor goes that way all the same.  A view travels without the storage it views.
    """
    torch = sys.modules["torch"]
    plain = (
        tensor.device.type == "cpu"
        and tensor.layout is torch.strided
        and not tensor.is_quantized
        and not tensor.is_conj()
        and not tensor.is_neg()
        and not getattr(tensor, "__dict__", None)
    )
    if not plain:
        return tensor.__reduce_ex__(_PROTOCOL)
    data = tensor.detach().contiguous()
    size = data.numel() * data.element_size()
    dtype = str(data.dtype).removeprefix("torch.")
    facts = (dtype, tuple(data.shape), tensor.requires_grad)
    if size == 0:
        return _rebuild_tensor, (b"", facts)
    memory = (ctypes.c_ubyte * size).from_address(data.data_ptr())
    memory.tensor = data  # lives as long as the view does
    buffer = pickle.PickleBuffer(memoryview(memory).cast("B"))
    return _rebuild_tensor, (buffer, facts)


def _rebuild_tensor(buffer: Any, facts: tuple[str, tuple[int, ...], bool]) -> Any:
    torch = importlib.import_module("torch")
    dtype, shape, requires_grad = facts
    kind = getattr(torch, dtype)
    if len(buffer) == 0:
        tensor = torch.empty(shape, dtype=kind)
    else:
        # A small buffer came in band, as bytes that nobody may write to.
        owned = bytearray(buffer) if memoryview(buffer).readonly else buffer
        tensor = torch.frombuffer(owned, dtype=kind).reshape(shape)
    return tensor.requires_grad_() if requires_grad else tensor
