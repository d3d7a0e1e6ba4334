"""A user's ``state_dict`` as tensors with names, and back (H-2: nothing is pickled).

Owns the cut between tensors, which travel and are compared as their bytes, and all else (numbers,
text, the nesting), which becomes one more tensor: the *skeleton*, in msgpack.

Invariants:
    The same state gives the same names and the same bytes, in whatever order its keys were set.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import torch
from torch import Tensor

from danaus.collectives.tensor_bytes import view_bytes
from danaus.core.errors import ConfigError
from danaus.ft.sharding import Sharding, is_sharded, sharding_of, with_sharding

SKELETON = "skeleton"
_PLAIN = (bool, int, float, str, bytes)
_INT_LIMIT = 2**63
_KEYS = (bool, int, float, str)


class _Node(msgspec.Struct, array_like=True, omit_defaults=True):
    """One place of the nesting; ``kind`` says what ``value`` is."""

    kind: str
    value: Any = None
    sharding: Sharding | None = None


def flatten(tree: object) -> dict[str, Tensor]:
    """Return the tensors of a nesting by name, its skeleton among them.

    Args:
        tree: Of mappings, lists and tuples; leaves are tensors, numbers, text, bytes and None.

    Raises:
        ConfigError: A leaf or a key of another kind; says where.
    """
    named: dict[str, Tensor] = {}
    root = _take_apart(tree, "", named)
    data = bytearray(msgspec.msgpack.encode(root))
    named[SKELETON] = torch.frombuffer(data, dtype=torch.uint8)
    return named


def unflatten(named: Mapping[str, Tensor], like: Mapping[str, Tensor]) -> Any:
    """Return the nesting that ``flatten`` took apart; its tensors are those of ``named``.

    Args:
        named: By name, with the skeleton; of sharded tensors this rank's part.
        like: What this process holds now: a sharded tensor takes its mesh from there.

    Raises:
        ConfigError: A tensor is sharded over a mesh that this process does not have.
    """
    root = msgspec.msgpack.decode(bytes(view_bytes(named[SKELETON])), type=_Node)
    return _put_together(root, named, like)


def _take_apart(tree: object, name: str, named: dict[str, Tensor]) -> _Node:
    if isinstance(tree, Tensor):
        if name in named or name == SKELETON:
            raise ConfigError(f"two tensors of a state_dict are both called {name}", "other keys")
        named[name] = tree.detach()
        return _Node("tensor", name, sharding_of(tree) if is_sharded(tree) else None)
    if isinstance(tree, Mapping):
        items = sorted(tree.items(), key=lambda item: (type(item[0]).__name__, str(item[0])))
        pairs = [[_key(key, name), _take_apart(each, _below(name, key), named)]
                 for key, each in items]  # fmt: skip
        return _Node("map", pairs)
    if isinstance(tree, list | tuple):
        parts = [_take_apart(each, _below(name, at), named) for at, each in enumerate(tree)]
        return _Node("tuple" if isinstance(tree, tuple) else "list", parts)
    return _leaf(tree, name)


def _leaf(value: object, name: str) -> _Node:
    if isinstance(value, int) and not -_INT_LIMIT <= value < 2 * _INT_LIMIT:
        return _Node("long", str(value))
    if value is None or isinstance(value, _PLAIN):
        return _Node("plain", value)
    if isinstance(value, torch.dtype):
        return _Node("dtype", str(value).removeprefix("torch."))
    raise ConfigError(
        f"a state_dict holds {type(value).__module__}.{type(value).__qualname__} at {name}",
        "tensors, numbers, text, bytes, None, and lists, tuples and mappings of them",
        "leave it out of state_dict, or turn it into one of these",
    )


def _key(key: object, name: str) -> object:
    if key is None or isinstance(key, _KEYS):
        return key
    raise ConfigError(
        f"a state_dict has a key {key!r} at {name or 'its top'}", "text or a number as a key"
    )


def _below(name: str, key: object) -> str:
    step = key if isinstance(key, str) else f"[{key!r}]"
    return f"{name}/{step}" if name else str(step)


def _put_together(node: _Node, named: Mapping[str, Tensor], like: Mapping[str, Tensor]) -> Any:
    if node.kind == "tensor":
        tensor = named[node.value]
        return tensor if node.sharding is None else with_sharding(tensor, node.sharding, like)
    if node.kind in ("map", "list", "tuple"):
        return _nest(node, named, like)
    if node.kind == "long":
        return int(node.value)
    return getattr(torch, node.value) if node.kind == "dtype" else node.value


def _nest(node: _Node, named: Mapping[str, Tensor], like: Mapping[str, Tensor]) -> Any:
    if node.kind == "map":
        return {key: _put_together(_node(each), named, like) for key, each in node.value}
    parts = [_put_together(_node(each), named, like) for each in node.value]
    return tuple(parts) if node.kind == "tuple" else parts


def _node(value: object) -> _Node:
    return msgspec.convert(value, _Node)
