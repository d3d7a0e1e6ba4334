"""What type checkers and editors are told of meshes of actors and their endpoints.

``ProcMesh.spawn("counter", Counter, 10)`` gives back a mesh, and the checker is told that it is a
``Counter``: so ``counters.add`` is found, its arguments are checked and its value has a type.  For
that an endpoint seen through an instance is both what ``self.add(1)`` is inside the actor, a plain
method, and what ``counters.add.call(1)`` is outside; and an actor answers to what a mesh does.
Nothing of this exists when the program runs: an instance has the method, a mesh has the adverbs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, ParamSpec, Protocol, Self, TypeVar, runtime_checkable

from danaus.actor.future import Future
from danaus.actor.replies import Replies
from danaus.actor.value_mesh import Outcome, ValueMesh
from danaus.core.extent import Extent, Point

P = ParamSpec("P")
R = TypeVar("R")
D_co = TypeVar("D_co", covariant=True)


@runtime_checkable
class Endpoint(Protocol[P, R]):
    """One endpoint of the actors of a mesh, and how it can be called.

    From any thread; not by the handler of a signal, which may have struck in the middle of a call.
    """

    @property
    def name(self) -> str:
        """Mesh and endpoint, for messages."""
        ...

    def with_options(self, *, timeout_s: float | None = None, retries: int = 0) -> Endpoint[P, R]:
        """Return the same endpoint, called otherwise.

        Args:
            timeout_s: After so many seconds points without an answer count as ``DeadlinePassed``
                and the call is cancelled there.
            retries: How many more tries a point gets that was lost or too slow, each with a
                limit of its own; an endpoint that raised has answered.

        Raises:
            ConfigError: ``retries`` of an endpoint that is not declared ``idempotent``.
        """
        ...

    def call(self, *args: P.args, **kwargs: P.kwargs) -> Future[ValueMesh[R]]:
        """Call every actor of the mesh.

        Returns:
            A future of all values; it raises an ``ExceptionGroup`` with one error per point that
            failed.
        """
        ...

    def settled(self, *args: P.args, **kwargs: P.kwargs) -> Future[ValueMesh[Outcome[R]]]:
        """Call every actor of the mesh; the future holds each one's ``Outcome`` (A-5)."""
        ...

    def call_one(self, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """Call the only actor of the mesh.

        Raises:
            ValueError: There is not exactly one.
        """
        ...

    def choose(self, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """Call one actor of the mesh: of those not known to be gone, one with the least to do.

        What counts is what was given to each by ``choose`` of this very mesh.
        """
        ...

    def stream(self, *args: P.args, **kwargs: P.kwargs) -> Replies[R]:
        """Call every actor of the mesh.

        Returns:
            An iterator of one future for each, in the order in which the answers arrive; for
            ``async for`` as well.
        """
        ...

    def broadcast(self, *args: P.args, **kwargs: P.kwargs) -> None:
        """Send to every actor of the mesh and wait for none.

        An endpoint that raises then is a failure of its actor and goes to its owner (A-6).
        """
        ...


class Method(Endpoint[P, R], Protocol[P, R, D_co]):
    """An endpoint seen through an instance; called directly, it is the plain method."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> D_co:
        """Run the method here and now."""
        ...


class MeshFace:
    """What a mesh of actors answers to, itself; no endpoint can have one of these names."""

    if TYPE_CHECKING:

        @property
        def mesh_name(self) -> str: ...
        @property
        def mesh_id(self) -> str: ...
        @property
        def extent(self) -> Extent: ...
        @property
        def sizes(self) -> dict[str, int]: ...
        @property
        def initialized(self) -> Future[None]: ...
        def size(self, axis: str | Sequence[str] | None = None) -> int: ...
        def points(self) -> Iterator[Point]: ...
        def slice(self, **selection: int | slice) -> Self: ...
        def split(self, **parts: Sequence[str] | int) -> Self: ...
        def flatten(self, name: str) -> Self: ...
        def rename(self, **names: str) -> Self: ...
        def stop(self, reason: str = "") -> Future[None]: ...
        def __len__(self) -> int: ...
        def __iter__(self) -> Iterator[Point]: ...
