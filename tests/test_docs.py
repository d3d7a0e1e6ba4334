"""What the documents say can be done, can be done; what they point at, is there.

Code blocks are told apart by the word after the fence: ``python`` runs as it stands (``python
fragment`` only parses), ``sh`` may name only our own targets and commands that exist, and a
``diff`` must leave valid Python once applied.
"""

from __future__ import annotations

import ast
import functools
import json
import os
import re
import runpy
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
RUN_LIMIT_S = 55.0

FENCE = re.compile(r"^```(.*?)\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
TARGET = re.compile(r"^([a-z]+):", re.MULTILINE)
INLINE = re.compile(r"`([^`\n]+)`")
INDENTED = re.compile(r"^(?: {4}|\t)(\S.*)$", re.MULTILINE)
DANAUS = [
    sys.executable,
    "-c",
    "import sys; from danaus.cli.main import main; sys.argv[0] = 'danaus'; sys.exit(main())",
]


@dataclass(frozen=True)
class Block:
    page: str
    line: int
    kind: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def blocks_of(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [
        Block(page.name, text.count("\n", 0, found.start()) + 1, found[1].strip(), found[2])
        for found in FENCE.finditer(text)
    ]


BLOCKS = [block for page in PAGES for block in blocks_of(page)]


def typed(page: Path, program: str) -> list[tuple[str, str]]:
    """What a page tells people to type after ``program``, in code of any form: word and rest."""
    text = page.read_text(encoding="utf-8")
    code = [found[2] for found in FENCE.finditer(text)]
    prose = FENCE.sub("", text)
    code += INLINE.findall(prose) + INDENTED.findall(prose)
    pattern = re.compile(rf"^(?:\$ )?{program} ([a-z]+)\b(?!:)([^#\n]*)", re.MULTILINE)
    return [each for text in code for each in pattern.findall(text)]


def of_kind(*kinds: str) -> list[Block]:
    return [block for block in BLOCKS if block.kind in kinds]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT / "src"), "NO_COLOR": "1", "COLUMNS": "120"}


def run(*command: str, folder: Path = ROOT) -> subprocess.CompletedProcess[str]:
    ended = subprocess.run(
        command, capture_output=True, text=True, timeout=RUN_LIMIT_S, cwd=folder, env=environment(),
        stdin=subprocess.DEVNULL, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, f"{command}\n{ended.stdout}\n{ended.stderr}"
    return ended


HELPS = """
import contextlib, io, json, sys
from danaus.cli.main import main
sys.argv[0] = "danaus"
helps = {}
for command in sys.argv[1:]:
    with contextlib.redirect_stdout(io.StringIO()) as said:
        try:
            code = main([command, "--help"])
        except SystemExit as end:
            code = end.code
    assert not code, command
    helps[command] = said.getvalue()
print(json.dumps(helps))
"""
"""One process for the help of all: most of the time of each is its start."""


@functools.cache
def helps() -> dict[str, str]:
    """The help of each command that ``danaus --help`` lists."""
    commands = re.findall(r"^ +danaus ([a-z]+)", run(*DANAUS, "--help").stdout, re.MULTILINE)
    return json.loads(run(sys.executable, "-c", HELPS, *commands).stdout)


@pytest.mark.parametrize("block", of_kind("python", "python fragment"), ids=str)
def test_python_parses(block):
    ast.parse(block.text)


@pytest.mark.parametrize("block", of_kind("python"), ids=str)
def test_python_runs(block, tmp_path, no_leaks):
    (tmp_path / "block.py").write_text(block.text)
    run(sys.executable, "block.py", folder=tmp_path)


def side_of(block: Block, *signs: str) -> str:
    """A diff's program before it is applied ("-") or after ("+")."""
    lines = [
        line for line in block.text.splitlines(keepends=True) if line[0] in (" ", "\n", *signs)
    ]
    return "".join(line[1:] for line in lines)


@pytest.mark.parametrize("block", of_kind("diff"), ids=str)
def test_diffs_leave_valid_python(block):
    for sign in "-+":
        ast.parse(side_of(block, sign))


YOURS = """
import atexit, sys, torch
from torch import nn

def build_model():
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    if sys.argv[0] == "train.py":
        torch.set_num_threads(1)
        atexit.register(lambda: torch.save(list(model.parameters()), f"weights-{sys.argv[1]}"))
    return model

def batch(step, m):
    return torch.randn(5, 4, generator=torch.Generator().manual_seed(100 * step + m))

def loss_of(model, inputs):
    return (model(inputs) - inputs.sum(dim=1, keepdim=True)).square().sum(), len(inputs)
"""


@pytest.mark.timeout(120)
def test_the_loop_of_the_readme_trains_as_it_did_before(tmp_path, monkeypatch, no_leaks):
    import torch

    (block,) = of_kind("diff")
    (tmp_path / "yours.py").write_text(YOURS)
    (tmp_path / "train.py").write_text(side_of(block, "+"))
    (tmp_path / "before.py").write_text(side_of(block, "-"))
    service = [sys.executable, "-m", "danaus.quorum.service", f"--run={tmp_path / 'run'}"]
    train = [sys.executable, "train.py"]
    with (
        subprocess.Popen(
            [*service, "--expected-replicas=2"], env=environment(), stdin=subprocess.PIPE
        ),
        ThreadPoolExecutor() as threads,
    ):
        for each in [threads.submit(run, *train, name, "0", folder=tmp_path) for name in "ab"]:
            each.result()
    monkeypatch.syspath_prepend(str(tmp_path))
    plain = runpy.run_path(str(tmp_path / "before.py"))["model"]
    a, b = (torch.load(tmp_path / f"weights-{name}") for name in "ab")
    for ours, others, before in zip(a, b, plain.parameters(), strict=True):
        assert torch.equal(ours, others)
        torch.testing.assert_close(ours, before, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    local = [link for link in LINK.findall(text) if not re.match(r"[a-z]+:", link)]
    for link in local:
        path, _, anchor = link.partition("#")
        target = page if not path else page.parent / path
        assert target.exists(), f"{page.name} links to {link}"
        if anchor and target.suffix == ".md":
            assert anchor in anchors(target), f"{page.name} links to {link}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_that_are_named_exist(page):
    named = re.findall(
        r"`((?:src|tests|examples|tools)/[\w./]+)`", page.read_text(encoding="utf-8")
    )
    assert not [name for name in named if not (ROOT / name).exists()]


ROOMS = {folder.name for folder in (ROOT / "src" / "danaus").iterdir() if folder.is_dir()}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_that_are_named_by_their_room_exist(page):
    named = re.findall(r"`((\w+)/\w+\.py)`", page.read_text(encoding="utf-8"))
    source = ROOT / "src" / "danaus"
    assert not [path for path, room in named if room in ROOMS and not (source / path).exists()]


def anchors(page: Path) -> set[str]:
    headings = re.findall(
        r"^#+ (.*)$", FENCE.sub("", page.read_text(encoding="utf-8")), re.MULTILINE
    )
    return {re.sub(r"[^\w\- ]", "", each.lower()).replace(" ", "-") for each in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_make_targets_exist(page):
    targets = set(TARGET.findall((ROOT / "Makefile").read_text(encoding="utf-8")))
    assert {target for target, _ in typed(page, "make")} <= targets


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_and_options_that_are_named_exist(page):
    for command, rest in typed(page, "danaus"):
        assert command in helps(), f"{page.name}: danaus {command}"
        options = re.findall(r"(--[a-z][\w.-]*)", rest)
        unknown = [option for option in options if option not in helps()[command]]
        assert not unknown, f"{page.name}: danaus {command} has no {unknown}"


def test_every_command_has_help():
    assert {"demo", "train", "compare", "report", "doctor", "bench"} <= set(helps())
    for command, said in helps().items():
        assert f"danaus {command}" in said


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_examples_run(example, tmp_path, no_leaks):
    """Each example runs on a CPU within the time of a test, says something, and cleans up."""
    assert ast.get_docstring(ast.parse(example.read_text(encoding="utf-8")))
    assert run(sys.executable, str(example), folder=tmp_path).stdout.strip()


def test_examples_are_named_in_the_readme():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert not [example.name for example in EXAMPLES if example.name not in readme]


def test_the_readme_names_the_two_commands():
    assert {"demo", "test"} <= {target for target, _ in typed(ROOT / "README.md", "make")}


FAILURES = ROOT / "docs" / "failures.md"
TESTED = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")


def test_each_failure_names_a_test_that_is_there():
    rows = [line for line in FAILURES.read_text(encoding="utf-8").splitlines() if line[:2] == "| "]
    kinds = rows[1:]
    for row in kinds:
        named = TESTED.findall(row.split(" | ")[-1])
        assert named, f"no test: {row}"
        for path, name in named:
            assert not name or f"def {name}(" in (ROOT / path).read_text(encoding="utf-8"), name
            assert (ROOT / path).exists(), path


def test_each_kind_of_fault_has_a_row():
    from danaus.app.chaos_kinds import FACTS

    rows = [line for line in FAILURES.read_text(encoding="utf-8").splitlines() if line[:2] == "| "]
    first = [row.split(" | ")[0] for row in rows]
    told = {name.partition(":")[0] for cell in first for name in INLINE.findall(cell)}
    assert set(FACTS) <= told
    columns = rows[0].count(" | ")
    assert not [row for row in rows if row.count(" | ") != columns], "a cell is missing"
