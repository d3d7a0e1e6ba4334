"""T-3, H-1: nothing is computed twice in one attempt, and a joiner's bytes come from its peers."""

import pytest

from danaus.app.events import Event
from danaus.ft.lineage import merge, verify
from danaus.testing.counting import CountForwards, forwards
from danaus.testing.faults import FORWARD, REDUCE, Pace, Strike
from danaus.testing.runs import Shape, running, small_run
from danaus.testing.watching import RunWatch
from danaus.train.config import CheckpointConfig
from danaus.train.trainer import Trainer

SHAPE = Shape(replicas=3, leaves=7, steps=14)


@pytest.mark.timeout(120)
def test_each_leaf_is_computed_once_per_attempt_and_joiners_learn_from_peers(tmp_path, undisturbed):
    count = CountForwards()
    pace = Pace(0.3, until=tmp_path / "fast", below=3)
    observers = {
        "replica-0": (count, pace),
        "replica-1": (count, pace, Strike(FORWARD, 3)),
        "replica-2": (count, pace, Strike(REDUCE, 7, at_strength=3)),
    }
    run = small_run(
        tmp_path / "run",
        SHAPE,
        observers=observers,
        checkpoint=CheckpointConfig(every_s=0),  # there is nothing on disk to learn from
    )
    with running(run) as going:
        going.watch.until("both to be back", lambda: len(going.watch.events(Event.HEALED)) == 2, 60)
        pace.until.touch()
        result = going.result(60)
    assert result.sha256 == undisturbed(run)
    watch = RunWatch(run.folder)
    _each_leaf_once(run, watch)
    _bytes_from_peers(run, watch)


def _each_leaf_once(run, watch):
    """In a committed attempt each leaf once, in a discarded one at most once; and no more."""
    told = verify(merge(run.folder.ledger_paths()))
    assert told.ok, told.problems
    history = merge(run.folder.ledger_paths())
    committed = {
        (step, str(next(iter(lines.values())).epoch)) for step, lines in history.steps.items()
    }
    discarded = {(e["step"], e["epoch"]) for e in watch.events(Event.STEP_DISCARDED)}
    assert len(committed) == SHAPE.steps
    assert len(discarded) == 2, "one for each death"
    counts, num_cut_short = forwards(run.folder.path)
    assert set(counts) == committed | discarded
    once = dict.fromkeys(range(SHAPE.leaves), 1)
    assert all(dict(counts[attempt]) == once for attempt in committed)
    assert all(set(counts[attempt].values()) <= {1} for attempt in discarded)
    assert num_cut_short <= 2 * SHAPE.leaves


def _bytes_from_peers(run, watch):
    """Each joiner got the whole state, the donors sent it, and there never was a checkpoint."""
    state = Trainer(run.config).state().values()
    num_bytes = sum(tensor.numel() * tensor.element_size() for tensor in state)
    healed = watch.events(Event.HEALED)
    assert [(e["replica"], e["bytes"]) for e in healed] == [
        ("replica-1", num_bytes), ("replica-2", num_bytes)
    ]  # fmt: skip
    assert healed[0]["donors"] == ["replica-0/0#0", "replica-2/0#0"]
    assert healed[1]["donors"] == ["replica-0/0#0", "replica-1/0#1"]
    later = sum(line["bytes"] for line in watch.events(Event.CAUGHT_UP))
    served = sum(line["bytes"] for line in watch.events(Event.STATE_SERVED))
    came = 2 * num_bytes + later
    assert came <= served <= 1.2 * came, "but for headers, once each"
    assert not list(run.folder.checkpoints.iterdir())
