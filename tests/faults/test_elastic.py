"""T-3: with ``batch="elastic"`` a step shrinks with its members, and nothing is read twice."""

from danaus.ft.ledger import Committed, read_ledger
from danaus.ft.lineage import merge, verify
from danaus.testing.faults import FORWARD, Strike
from danaus.testing.runs import Shape, finish, small_run
from danaus.train.config import StepConfig


def test_an_elastic_batch_shrinks_with_its_members(tmp_path):
    step = StepConfig(
        num_microbatches=6, microbatch_size=2, seq_len=32, num_steps=10, seed=7, batch="elastic"
    )
    strike = Strike(FORWARD, step=3)
    run = small_run(
        tmp_path / "run", Shape(replicas=2), observers={"replica-1": (strike,)}, step=step
    )
    assert finish(run).step == 10
    lines = [
        line
        for path in run.folder.ledger_paths()
        for line in read_ledger(path).lines
        if isinstance(line, Committed)
    ]
    whole = 6 * 2 * 32
    assert {(len(line.leaves), line.num_tokens) for line in lines} == {(2, whole), (1, whole // 2)}
    told = verify(merge(run.folder.ledger_paths()))
    assert told.ok, told.problems
