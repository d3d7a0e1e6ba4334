"""The house rules that a machine can check.  Lists here name exceptions, never what exists."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SRC = ROOT / "src" / "danaus"
MODULES = sorted(SRC.rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))
EXAMPLES = sorted((ROOT / "examples").rglob("*.py"))
EVERYTHING = [*MODULES, *TESTS, *EXAMPLES]

FILE_LINES = 400
FUNCTION_LINES = 60
NINE_IN_TEN_LINES = 30
PARAMETERS, POSITIONAL = 6, 3
FACES = {"actor", "job", "ft", "train", "model", "testing"}
TORCHLESS = ("core", "wire", "job", "actor", "quorum")
NAMELESS = {"utils", "util", "common", "helpers", "helper", "types", "manager", "misc", "base"}
MAY_READ_ENVIRONMENT = ("cli/", "job/", "actor/worker.py", "actor/agent.py")
MAY_READ_THE_DAY = {
    "core/clock.py": "owns it",
    "core/journal.py": "writes it beside each event",
    "ft/scribe.py": "writes it beside each step of the ledger",
    "ft/managed_place.py": "gives an incarnation that was not used where the user names none",
    "app/training.py": "writes it beside the ledger's beginning",
    "actor/wall_clock.py": "is written into a failure",
    "app/chaos_desk.py": "tells a campaign's lines from older ones of the journal",
    "app/chaos_view.py": "tells a campaign's lines from older ones of the journal",
    "quorum/service_options.py": "gives a term that was not used where nothing else names one",
    "quorum/minutes.py": "writes it beside each decision that the service's page shows",
    "quorum/lease_kubernetes.py": "writes it into the lease, for people",
    "app/bench_recovery.py": "names a folder and dates a measurement",
    "app/bench_campaign.py": "names a folder and dates a measurement",
    "app/bench_table.py": "dates a measurement",
    "cli/demo.py": "names a folder",
    "cli/train.py": "names a folder",
}
MAY_NAME_PROC = {
    "core/proc_root.py": "owns it",
    "platform/cpu.py": "asks Python where it is not there",
    "wire/address.py": "has no IPv6 address of an interface where it is not there",
}
NEEDS_LINUX = ("testing/", "app/lab", "app/chaos", "app/campaign", "app/bench", "app/soak")
MAY_CATCH_ALL = 3
PURE = (
    "quorum.state", "quorum.resolve", "quorum.progress", "quorum.donors", "quorum.lease", "ft.step",
    "ft.fragments", "actor.holdings", "actor.supervision", "actor.waiting_state", "core.extent",
    "collectives.tree", "app.chaos", "app.chaos_fault", "app.chaos_kinds", "app.chaos_record",
    "app.chaos_schedule", "app.chaos_spec", "app.crew_plan",
)  # fmt: skip

Function = ast.FunctionDef | ast.AsyncFunctionDef
_trees: dict[Path, ast.Module] = {}


def tree(path: Path) -> ast.Module:
    if path not in _trees:
        _trees[path] = ast.parse(path.read_text(encoding="utf-8"))
    return _trees[path]


def where(path: Path, node: ast.AST) -> str:
    return f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 1)}"


def nodes(paths: list[Path], *kinds: type[ast.AST]) -> Iterator[tuple[Path, ast.AST]]:
    return ((path, node) for path in paths for node in ast.walk(tree(path)) if type(node) in kinds)


def functions(paths: list[Path]) -> Iterator[tuple[Path, Function]]:
    return nodes(paths, ast.FunctionDef, ast.AsyncFunctionDef)  # type: ignore[return-value]


def length(function: Function) -> int:
    """Lines of a function without its docstring."""
    docstring = ast.get_docstring(function, clean=False)
    documented = docstring.count("\n") + 1 if docstring else 0
    return (function.end_lineno or 0) - function.lineno + 1 - documented


def dotted(node: ast.AST) -> str:
    """``a.b.c`` of a name or attribute; calls in between count as their function."""
    if isinstance(node, ast.Call):
        return dotted(node.func)
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def holds(offenders: list[str]) -> None:
    assert not offenders, "\n" + "\n".join(offenders)


# -- sizes -----------------------------------------------------------------------------------


def test_a_file_fits_in_a_sitting():
    lines = {path: path.read_text(encoding="utf-8").count("\n") for path in EVERYTHING}
    holds([f"{where(path, tree(path))}: {n}" for path, n in lines.items() if n > FILE_LINES])


def test_a_function_fits_on_a_screen():
    long = [(path, f) for path, f in functions(EVERYTHING) if length(f) > FUNCTION_LINES]
    holds([f"{where(path, f)} {f.name}: {length(f)} lines" for path, f in long])


def test_nine_functions_in_ten_are_short():
    lengths = sorted(length(function) for _, function in functions(MODULES))
    assert lengths[len(lengths) * 9 // 10] < NINE_IN_TEN_LINES


def test_functions_take_few_parameters():
    offenders = []
    for path, function in functions(MODULES):
        given = function.args
        positional = [arg.arg for arg in (*given.posonlyargs, *given.args)]
        positional = positional[positional[:1] in (["self"], ["cls"], ["mcs"]) :]
        if len(positional) > POSITIONAL or len(positional) + len(given.kwonlyargs) > PARAMETERS:
            offenders.append(f"{where(path, function)} {function.name}({', '.join(positional)})")
    holds(offenders)


# -- names and rooms -------------------------------------------------------------------------


def test_no_module_is_called_after_nothing():
    holds([where(path, tree(path)) for path in MODULES if path.stem in NAMELESS])
    holds([where(path, tree(path)) for path in MODULES if path.parent.name in NAMELESS])


def test_every_module_says_what_it_owns():
    documented = [path for path in MODULES if path.name != "__init__.py"]
    holds([where(path, tree(path)) for path in documented if not ast.get_docstring(tree(path))])


def _is_face_statement(node: ast.stmt) -> bool:
    if isinstance(node, ast.FunctionDef):
        return node.name in ("__getattr__", "__dir__")
    if isinstance(node, ast.ImportFrom):
        return not (node.module or "").startswith("danaus")
    docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return docstring or isinstance(node, ast.Assign | ast.AnnAssign | ast.Import)


def test_faces_export_lazily_and_other_rooms_are_silent():
    offenders = []
    for init in SRC.glob("*/__init__.py"):
        body = tree(init).body
        if init.parent.name in FACES:
            offenders += [where(init, node) for node in body if not _is_face_statement(node)]
        elif body:
            offenders.append(where(init, body[0]))
    holds(offenders)


def test_the_package_root_only_says_what_it_is():
    assert [type(node) for node in tree(SRC / "__init__.py").body] == [ast.Expr]


def test_unit_tests_mirror_the_rooms():
    rooms = {folder.name for folder in SRC.iterdir() if folder.is_dir()}
    folders = [each for each in (ROOT / "tests" / "unit").iterdir() if each.is_dir()]
    holds([each.name for each in folders if each.name not in rooms | {"__pycache__"}])


# -- imports ---------------------------------------------------------------------------------


def test_nothing_is_imported_for_type_checking_only():
    guards = [
        (path, node) for path, node in nodes(MODULES, ast.If)
        if dotted(node.test).endswith("TYPE_CHECKING")  # type: ignore[attr-defined]
    ]  # fmt: skip
    holds([where(path, node) for path, node in guards if "danaus" in ast.dump(node)])


def test_nothing_inside_imports_the_package_root():
    offenders = []
    for path, node in nodes(MODULES, ast.Import, ast.ImportFrom):
        module = getattr(node, "module", None)
        names = [alias.name for alias in node.names]  # type: ignore[attr-defined]
        if module == "danaus" or (module is None and "danaus" in names):
            offenders.append(where(path, node))
    holds(offenders)


def test_pure_machines_are_under_contract():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    contracts = {each["id"]: each for each in settings["tool"]["importlinter"]["contracts"]}
    named = set(contracts["pure"]["source_modules"])
    holds([name for name in PURE if f"danaus.{name}" not in named])
    torchless = set(contracts["torchless"]["source_modules"])
    holds([room for room in TORCHLESS if f"danaus.{room}" not in torchless])


CONTROL_PLANE = """
import importlib, sys
for name in ("torch", "numpy", "safetensors", "matplotlib"):
    sys.modules[name] = None  # as if it were not installed
for name in sys.argv[1:]:
    importlib.import_module(name)
"""


def test_the_control_plane_imports_where_torch_is_not_installed():
    paths = [path for room in TORCHLESS for path in (SRC / room).rglob("*.py")]
    names = [".".join(path.relative_to(SRC.parent).with_suffix("").parts) for path in paths]
    names = [name.removesuffix(".__init__") for name in names if not name.endswith("__main__")]
    command = [sys.executable, "-c", CONTROL_PLANE, *names]
    subprocess.run(command, check=True, timeout=30, env={"PYTHONPATH": str(SRC.parent)})


# -- behaviour -------------------------------------------------------------------------------


def test_the_environment_is_read_at_the_entries_only():
    reads = [
        (path, node) for path, node in nodes(MODULES, ast.Attribute, ast.ImportFrom)
        if (isinstance(node, ast.Attribute) and dotted(node) in ("os.environ", "os.getenv"))
        or (isinstance(node, ast.ImportFrom) and node.module == "os"
            and {alias.name for alias in node.names} & {"environ", "getenv"})
    ]  # fmt: skip
    inside = [
        (path, node) for path, node in reads
        if not str(path.relative_to(SRC)).startswith(MAY_READ_ENVIRONMENT)
    ]  # fmt: skip
    holds([where(path, node) for path, node in inside])


def test_the_time_of_day_is_written_down_and_decides_nothing():
    """Clocks are set while a run goes on: each place that reads one says here what for."""
    words = ("time.time", "time_of_day", "dt.datetime.now", "datetime.now")
    reads = {
        str(path.relative_to(SRC))
        for path, call in nodes(MODULES, ast.Call)
        if dotted(call.func) in words  # type: ignore[attr-defined]
    }
    assert reads == MAY_READ_THE_DAY.keys()


def _catches_all(handler: ast.ExceptHandler) -> bool:
    caught = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    names = {dotted(each) if each else "BaseException" for each in caught}
    raises_again = any(isinstance(node, ast.Raise) and not node.exc for node in handler.body)
    return "Exception" in names or ("BaseException" in names and not raises_again)


def test_what_other_systems_lack_is_read_through_one_name():
    named = {
        path.relative_to(SRC).as_posix()
        for path in MODULES
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Constant) and str(node.value).startswith("/proc")
    }
    assert {path for path in named if not path.startswith(NEEDS_LINUX)} == set(MAY_NAME_PROC)


def test_everything_is_caught_in_three_places_only():
    handlers = [
        where(path, node) for path, node in nodes(MODULES, ast.ExceptHandler)
        if _catches_all(node)  # type: ignore[arg-type]
    ]  # fmt: skip
    assert len(handlers) <= MAY_CATCH_ALL, "\n" + "\n".join(handlers)


def test_every_task_has_an_owner():
    """A task whose handle is dropped must come from a group (``tasks.create_task(...)``)."""
    offenders = []
    for path, node in nodes(EVERYTHING, ast.Expr):
        call = node.value  # type: ignore[attr-defined]
        owner, _, name = dotted(call).rpartition(".") if isinstance(call, ast.Call) else ("",) * 3
        if name not in ("create_task", "ensure_future"):
            continue
        if owner.rpartition(".")[2] in ("", "asyncio", "loop", "_loop", "get_running_loop"):
            offenders.append(where(path, node))
    holds(offenders)


def test_no_test_sleeps():
    offenders = []
    for path, node in nodes([*TESTS, *EXAMPLES], ast.Call):
        name, first = dotted(node), [*getattr(node, "args", []), None][0]
        yields = isinstance(first, ast.Constant) and first.value == 0
        if name in ("time.sleep", "sleep") or (name == "asyncio.sleep" and not yields):
            offenders.append(where(path, node))
    holds(offenders)


MACHINE_PATH = re.compile(r"(?<![\w.~<-])/(?:work|home|root|Users|opt|mnt|data)/\w")
INDEX = re.compile(r"(?:index-url|find-links)[\s=\"']+https?:")


@pytest.mark.parametrize("pattern", [MACHINE_PATH, INDEX], ids=["path", "index"])
def test_no_machine_and_no_package_index_is_named(pattern):
    kinds = ("*.py", "*.pyi", "*.md", "*.toml", "*.json", "*.sh", "*.txt", "Makefile", "run")
    folders = [ROOT / name for name in ("src", "tests", "examples", "tools", ".ci")]
    files = [path for kind in kinds for path in ROOT.glob(kind)]
    files += [path for folder in folders for kind in kinds for path in folder.rglob(kind)]
    offenders = []
    for path in files:
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            if pattern.search(line):
                offenders.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()}")
    holds(offenders)
