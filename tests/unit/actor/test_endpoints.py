"""What a class may declare, and the check of arguments before anything is sent."""

from __future__ import annotations

import pytest

from danaus.actor import Actor, concurrent_endpoint, endpoint
from danaus.actor.actor_mesh import ActorMesh
from danaus.actor.endpoints import RESERVED


class Adder(Actor):
    def __init__(self) -> None:
        self.total = 0

    @endpoint
    def add(self, k: int, *, twice: bool = False) -> int:
        """Add."""
        self.total += k * (1 + twice)
        return self.total

    @concurrent_endpoint
    async def look(self) -> int:
        return self.total


def test_endpoints_are_found_with_how_they_run():
    specs = Adder.__endpoints__
    assert sorted(specs) == ["add", "look"]
    assert (specs["add"].is_async, specs["add"].concurrent) == (False, False)
    assert (specs["look"].is_async, specs["look"].concurrent) == (True, True)


def test_on_an_instance_an_endpoint_is_a_plain_method():
    adder = Adder()
    assert adder.add(3) == 3
    assert adder.add(3, twice=True) == 9
    assert Adder.add.__doc__ == "Add."


@pytest.mark.parametrize(
    ("args", "kwargs"), [((), {}), ((1, 2), {}), ((1,), {"thrice": True}), ((1,), {"k": 1})]
)
def test_arguments_that_do_not_fit_are_refused(args, kwargs):
    with pytest.raises(TypeError, match=r"Adder\.add\(\): "):
        Adder.__endpoints__["add"].check(args, kwargs)


def test_arguments_that_fit_are_taken():
    Adder.__endpoints__["add"].check((1,), {"twice": True})


def test_the_reserved_names_are_those_of_a_mesh():
    public = {name for name in dir(ActorMesh) if not name.startswith("_")}
    assert public | {"mesh_id", "mesh_name"} == RESERVED


@pytest.mark.parametrize("name", sorted(RESERVED))
def test_a_reserved_name_is_refused_when_the_class_is_made(name):
    with pytest.raises(TypeError, match=rf"cannot be called '{name}'"):
        type("Clash", (Actor,), {name: endpoint(lambda self: None)})


def test_subclasses_inherit_and_may_take_back():
    class More(Adder):
        look = None  # type: ignore[assignment]

        @endpoint
        def more(self) -> None: ...

    assert sorted(More.__endpoints__) == ["add", "more"]
    assert sorted(Adder.__endpoints__) == ["add", "look"]


def test_what_is_no_method_is_no_endpoint():
    with pytest.raises(TypeError, match="cannot be an endpoint"):
        endpoint(3)  # type: ignore[arg-type]
