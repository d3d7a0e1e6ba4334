"""Classes and functions that workers cannot import: of scripts, notebooks and closures."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

from danaus.actor import Accumulator, Actor, endpoint, shutdown_context, this_proc

LIMIT_S = 20.0
ROOT = Path(__file__).parents[3]

SCRIPT = """
from __future__ import annotations
import dataclasses
from danaus.actor import Actor, MeshFailure, current_rank, endpoint, shutdown_context, this_host

FACTOR = 3

@dataclasses.dataclass
class Order:
    amount: int

class Refused(Exception):
    def __init__(self, amount):
        super().__init__(amount)
        self.amount = amount

def scaled(order: Order) -> Order:
    return Order(order.amount * FACTOR)

class Clerk(Actor):
    @endpoint
    def take(self, order: Order) -> Order:
        if order.amount < 0:
            raise Refused(order.amount)
        return scaled(order)

    @endpoint
    def apply(self, function, value):
        return function(value)

def main():
    procs = this_host().spawn_procs({"r": 2})
    clerks = procs.spawn("clerk", Clerk)
    taken = clerks.take.call(Order(5)).get()
    print([type(order) is Order for order in taken.values()], taken.get(0))
    outcome = clerks.slice(hosts=0, r=1).take.settled(Order(-1)).get().item()
    print(type(outcome.error.__cause__) is Refused, outcome.error.__cause__.amount)
    offset = 10

    class Local(Clerk):
        @endpoint
        def take(self, order):
            return Order(order.amount + offset + current_rank().rank)

    orders = procs.spawn("local", Local).take.call(Order(1)).get()
    print([order.amount for order in orders.values()])
    print(list(clerks.apply.call(lambda value: value + offset + FACTOR, 1).get().values()))
    shutdown_context()

if __name__ == "__main__":
    main()
"""

NOTEBOOK = """
import __main__
from danaus.actor import shutdown_context

def run(number, cell):
    exec(compile(cell, f"<ipython-input-{number}>", "exec"), vars(__main__))

run(1, '''
from danaus.actor import Actor, endpoint, this_host
rate = 2
class Worker(Actor):
    @endpoint
    def work(self, k):
        return k * rate
''')
run(2, '''
procs = this_host().spawn_procs({"r": 2})
print(list(procs.spawn("worker", Worker).work.call(4).get().values()))
''')
run(3, '''
rate = 5
class Worker(Worker):
    @endpoint
    def rest(self):
        return "rested"
''')
run(4, '''
again = procs.spawn("worker", Worker)
print(list(again.work.call(4).get().values()), list(again.rest.call().get().values()))
''')
shutdown_context()
"""


def run(*arguments: str, given: str | None = None) -> list[str]:
    done = subprocess.run(
        [sys.executable, *arguments],
        input=given,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        timeout=50,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout.splitlines()


EXPECTED = [
    "[True, True] Order(amount=15)",
    "True -1",
    "[11, 12]",
    "[14, 14]",
]


def test_what_a_script_defines_works_in_workers_and_comes_back_as_its_own(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    assert run(str(tmp_path / "script.py")) == EXPECTED


def test_so_does_what_is_typed_at_a_prompt():
    assert run("-", given=SCRIPT) == EXPECTED


def test_a_cell_that_is_run_again_has_its_new_meaning(tmp_path):
    (tmp_path / "notebook.py").write_text(NOTEBOOK)
    assert run(str(tmp_path / "notebook.py")) == ["[8, 8]", "[20, 20] ['rested', 'rested']"]


def test_a_class_of_a_function_holds_what_it_closes_over(one):
    seen = 40

    class Local(Actor):
        @endpoint
        def add(self, k: int) -> int:
            return seen + k

        @endpoint
        def subclass(self) -> type[Actor]:
            return type("Sub", (Local,), {})

    procs = one.host(0).spawn_procs({"r": 2}, name="w")
    locals_ = procs.spawn("local", Local)
    assert Accumulator(locals_.add, 0, lambda a, b: a + b).accumulate(1).get(LIMIT_S) == 82
    made = locals_.slice(r=0).subclass.call_one().get(LIMIT_S)
    assert procs.spawn("made", made).add.call(2).get(LIMIT_S).values() == (42, 42)


def test_an_actor_of_this_program_is_given_what_does_not_pickle():
    class Holder(Actor):
        def __init__(self, lock) -> None:
            self.lock = lock

        @endpoint
        def is_locked(self) -> bool:
            return self.lock.locked()

    lock = threading.Lock()
    holder = this_proc().spawn("holder", Holder, lock)
    with lock:
        assert holder.is_locked.call_one().get(LIMIT_S)
    shutdown_context()
