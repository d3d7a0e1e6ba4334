"""Process names: each start has one of its own, whoever asks for it."""

from __future__ import annotations

import pytest

from danaus.actor import (
    Actor,
    MeshFailure,
    SupervisionError,
    context,
    current_rank,
    endpoint,
    this_host,
)
from danaus.core.errors import ConfigError

LIMIT_S = 20.0


class Placed(Actor):
    @endpoint
    def place(self) -> tuple[str, int]:
        return context().proc.process_id, current_rank().rank


class Namesake(Actor):
    @endpoint
    async def spawn_again(self, name: str) -> str:
        try:
            await this_host().spawn_procs(name=name).initialized
        except SupervisionError as error:
            return str(error)
        return ""

    def __supervise__(self, failure: MeshFailure) -> bool:
        return True


def test_a_mesh_is_restarted_under_the_next_incarnation(one):
    host = one.host(0)
    first = host.spawn_procs({"r": 2}, name="w").spawn("placed", Placed)
    first.initialized.get(LIMIT_S)
    procs = host.spawn_procs({"r": 2}, name="w", incarnation=1)
    again = procs.spawn("placed", Placed)
    assert again.place.call().get(LIMIT_S).values() == (("host0/w/0#1", 0), ("host0/w/1#1", 1))
    with pytest.raises(ConfigError, match="process host0/w/0#0 was started before"):
        host.spawn_procs({"r": 2}, name="w")
    namesake = host.spawn_procs(name="s").spawn("namesake", Namesake)
    assert "was used before on this host" in namesake.spawn_again.call_one("w").get(LIMIT_S)
    assert first.place.call().get(LIMIT_S).values() == (("host0/w/0#0", 0), ("host0/w/1#0", 1))
