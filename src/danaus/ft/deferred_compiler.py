"""Optimisers of torch that leave its compiler alone until something is to be compiled.

Owns ``defer_compiler``.  An optimiser tells torch's compiler where it must not go on: methods are
to be left out (``torch._disable_dynamo``), a graph ends within ``step``
(``_use_grad_for_differentiable``).  To say so torch imports ``torch._dynamo``, all of it, as the
first optimiser is made; that takes as long as the import of torch, also where nothing is compiled.

Invariants:
    From the moment on at which ``torch._dynamo`` is looked for, all of torch is as torch made it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from types import CodeType, FunctionType, ModuleType

import torch

_COMPILER = "torch._dynamo"
_LEFT_OUT = "__dynamo_disable"
"""Where torch keeps what the compiler made of a method (``torch/_compile.py``)."""
_INSTEAD = {_COMPILER: "torch.compiler", "_dynamo": "compiler", "graph_break": "is_compiling"}
"""What stands for the compiler in ``step``: a module that is there, a question without effect."""
_OTHERS = frozenset(
    {"Optimizer", "cast", "defaults", "is_grad_enabled", "set_grad_enabled", "torch"}
)
"""What ``step`` names beside the compiler."""


def defer_compiler() -> None:
    """Leave torch's compiler alone until something imports it, which saves a start about a second.

    Call it before the first optimiser is made.  Until ``torch._dynamo`` is imported nothing can be
    compiled, and optimisers go about their work without telling the compiler; when something
    imports it, as ``torch.compile`` does, torch's own way is restored first.  What is computed is
    the same, compiled or not.  It counts for the kinds of optimisers that are defined by now.  To
    call it again, or late, or with a torch that goes another way, changes nothing.
    """
    if _COMPILER in sys.modules or any(isinstance(each, _Restore) for each in sys.meta_path):
        return
    methods = list(_left_out())
    steps = [(function, function.__code__) for function in _steps()]
    # First: from here on nobody imports the compiler unseen.
    sys.meta_path.insert(0, _Restore(methods, steps))
    for method in methods:
        setattr(method, _LEFT_OUT, method)
    for function, code in steps:
        function.__code__ = _without_compiler(code)


class _Restore:
    """Finds no module, and gives torch back its own when the compiler is looked for.

    Args:
        methods: That stand where what the compiler makes of them is kept.
        steps: Functions, each with its own code.
    """

    def __init__(
        self,
        methods: Sequence[FunctionType],
        steps: Sequence[tuple[FunctionType, CodeType]],
    ) -> None:
        self._methods, self._steps = methods, steps

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> None:
        """Restore, where it is the compiler; have the others find it."""
        if name != _COMPILER:
            return
        for method in self._methods:
            if getattr(method, _LEFT_OUT, None) is method:
                delattr(method, _LEFT_OUT)
        for function, code in self._steps:
            function.__code__ = code


def _left_out() -> Iterator[FunctionType]:
    """Yield the methods that the compiler is to leave out, as torch's own wrapper calls them."""
    for outer in vars(torch.optim.Optimizer).values():
        method = getattr(outer, "__wrapped__", None)
        if not isinstance(outer, FunctionType) or not isinstance(method, FunctionType):
            continue
        if _LEFT_OUT in outer.__code__.co_consts:
            yield method


def _steps() -> Iterator[FunctionType]:
    """Yield what calls the compiler within the ``step`` of any optimiser, each once."""
    home = sys.modules[torch.optim.Optimizer.__module__]
    outer = getattr(home, "_use_grad_for_differentiable", None)
    codes = outer.__code__.co_consts if isinstance(outer, FunctionType) else ()
    known = [each for each in codes if isinstance(each, CodeType) and _is_known(each)]
    found: dict[int, FunctionType] = {}
    for kind in _kinds(torch.optim.Optimizer):
        step = vars(kind).get("step")
        while step is not None:
            if isinstance(step, FunctionType) and step.__code__ in known:
                found[id(step)] = step
            step = getattr(step, "__wrapped__", None)
    return iter(found.values())


def _kinds(kind: type[torch.optim.Optimizer]) -> Iterator[type[torch.optim.Optimizer]]:
    yield kind
    for each in kind.__subclasses__():
        yield from _kinds(each)


def _is_known(code: CodeType) -> bool:
    """Tell whether it does nothing with the compiler but to end a graph."""
    return set(_INSTEAD) <= set(code.co_names) <= set(_INSTEAD) | _OTHERS


def _without_compiler(code: CodeType) -> CodeType:
    return code.replace(co_names=tuple(_INSTEAD.get(name, name) for name in code.co_names))
