"""Who may import whom: `asyncdlock` ← `harness` ← `bench`, `tests`; read from the source."""

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("asyncdlock", "harness", "bench", "tests", "examples")

# Inside asyncdlock, from the ground up: a module imports only what stands before it.
LAYERS = [
    {"asyncdlock._process"},
    {"asyncdlock.types", "asyncdlock.errors"},
    {"asyncdlock._local_place"},
    {
        "asyncdlock._backoff",
        "asyncdlock._durations",
        "asyncdlock._fence_memory",
        "asyncdlock._options",
        "asyncdlock.metrics",
    },
    {"asyncdlock._url"},
    {"asyncdlock.backend"},
    {
        "asyncdlock._arguments",
        "asyncdlock._deadman",
        "asyncdlock._holding",
        "asyncdlock._local_inspection",
    },
    {
        "asyncdlock._watchdog",
        "asyncdlock._cleanup",
        "asyncdlock._callers",
        "asyncdlock._deadlines",
        "asyncdlock._local_queue",
        "asyncdlock._loop_thread",
    },
    {"asyncdlock._thread_backend"},
    {"asyncdlock._core"},
    {"asyncdlock._grants", "asyncdlock.handle"},
    {"asyncdlock._hold", "asyncdlock._operating"},
    {
        "asyncdlock.kinds",
        "asyncdlock.kinds.several",
        "asyncdlock.kinds.locked",
        "asyncdlock.kinds.observer",
        "asyncdlock.kinds.turn",
    },
    {"asyncdlock.kinds.leader", "asyncdlock.kinds.once", "asyncdlock.kinds.shared"},
    {"asyncdlock.kinds.semaphore"},
    {"asyncdlock.kinds.verbs"},
    {"asyncdlock.client"},
    {"asyncdlock._connect"},
    {"asyncdlock.reentrant", "asyncdlock._threaded_client", "asyncdlock._inside", "asyncdlock.tracing"},
    {"asyncdlock._blocking_handle"},
    {"asyncdlock.blocking"},
    {"asyncdlock"},
    {"asyncdlock._child"},
    {"asyncdlock.cli"},
    {"asyncdlock.__main__"},
]


@functools.cache
def sources() -> dict[str, Path]:
    """Every module of ours and its file."""
    found = {}
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
            found[name] = path
    return found


def within(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


def _runtime(nodes: list[ast.stmt]) -> Iterator[ast.AST]:
    """Every node but those under `if TYPE_CHECKING:`, which never run."""
    for node in nodes:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            yield from _runtime(node.orelse)
            continue
        yield node
        for child in ast.iter_child_nodes(node):
            yield from _runtime([child])  # type: ignore[list-item]


@functools.cache
def imports(module: str) -> frozenset[str]:
    """Our modules that `module` imports when it runs, also inside functions."""
    names: set[str] = set()
    for node in _runtime(ast.parse(sources()[module].read_text("utf-8")).body):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} imports by a relative name"
            base = node.module or ""
            names |= {
                f"{base}.{alias.name}" if f"{base}.{alias.name}" in sources() else base
                for alias in node.names
            }
    return frozenset(name for name in names if name.partition(".")[0] in PACKAGES)


def modules(*packages: str) -> list[str]:
    found = [name for name in sources() if any(within(name, package) for package in packages)]
    assert found, f"nothing found under {packages}"
    return found


def violations(importers: list[str], forbidden: tuple[str, ...], allowed: tuple[str, ...] = ()) -> list[str]:
    return [
        f"{module} imports {name}"
        for module in importers
        for name in sorted(imports(module))
        if any(within(name, package) for package in forbidden)
        and not any(within(name, package) for package in (*allowed, module))
    ]


def test_the_scanner_sees_imports() -> None:
    """A test of the test: an import known to be there, at the top and inside a function."""
    assert "asyncdlock.client" in imports("asyncdlock")
    assert "harness.servers" in imports("tests.conftest")


def test_the_library_knows_neither_the_harness_nor_its_users() -> None:
    assert violations(modules("asyncdlock"), ("harness", "bench", "tests", "examples")) == []


def test_the_harness_knows_neither_benchmarks_nor_tests() -> None:
    assert violations(modules("harness"), ("bench", "tests", "examples")) == []


def test_benchmarks_and_examples_do_not_need_the_tests() -> None:
    users = [name for name in sources() if within(name, "bench") or within(name, "examples")]
    assert violations(users, ("tests",)) == []


SHARED_NAMES = {
    "Address": "of a lock server in a URL, and of the resource",
    "Arrivals": "the stream of them that contenders take from, and `arrivals` in a summary",
    "Backend": "the protocol that a backend fulfils, and `backend` in a summary",
    "Connection": "the resource's own end of one, and a client's",
    "Hold": "the context of `hold()`, and from when until when a holder had the lock, in a history",
    "Mark": "the highest fence that a guard has seen, at S3 and at the resource; a mark of a timeline",
    "Metrics": "of the library and of the resource",
    "Pauses": "as they are counted, and `pauses` in a summary",
    "Reply": "of the resource: to a fenced write, and to any request",
    "State": "of a holding, and of a key at the resource",
    "Value": "a guard's answer, and a key's value in a history",
}
"""Classes that still share a name, each with what it means. A new one finds a name of its own."""


def test_no_two_classes_share_a_name() -> None:
    """But for those of different backends, which know nothing of each other and are read one at a time."""
    places: dict[str, list[str]] = {}
    for module in modules("asyncdlock", "harness"):
        house = (
            ".".join(module.split(".")[:3]) if within(module, "asyncdlock.backends") else "everywhere else"
        )
        for node in ast.walk(ast.parse(sources()[module].read_text("utf-8"))):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(f"{node.name} in {house}", []).append(module)
    shared = {name: where for name, where in places.items() if len(where) > 1}
    assert {name: shared[name] for name in shared if name.partition(" ")[0] not in SHARED_NAMES} == {}


MOST_LINES = 300


def test_no_module_of_the_library_is_longer_than_can_be_read_at_once() -> None:
    lengths = {
        module: len(sources()[module].read_text("utf-8").splitlines()) for module in modules("asyncdlock")
    }
    assert {module: lines for module, lines in lengths.items() if lines > MOST_LINES} == {}


@pytest.mark.parametrize("level", range(len(LAYERS)))
def test_the_core_is_built_in_layers(level: int) -> None:
    above = {name for layer in LAYERS[level + 1 :] for name in layer}
    wrong = [
        f"{module} imports {name}"
        for module in sorted(LAYERS[level])
        for name in sorted(imports(module))
        if name in above or within(name, "asyncdlock.backends")
    ]
    assert wrong == []


def test_every_module_of_the_core_has_its_layer() -> None:
    core = {
        name
        for name in modules("asyncdlock")
        if not any(within(name, f"asyncdlock.{room}") for room in ("backends", "fencing", "pytest_plugin"))
    }
    assert core == {name for layer in LAYERS for name in layer}


def test_backends_know_neither_the_client_nor_each_other() -> None:
    """Redlock alone builds on Redis's single-node verbs."""
    folder = "asyncdlock.backends"
    names = {name.split(".")[2] for name in modules(folder) if name != folder}
    assert {"memory", "redis", "redlock", "etcd", "zookeeper"} <= names
    users = ("asyncdlock.client", "asyncdlock.handle", "asyncdlock._hold", "asyncdlock._watchdog")
    for name in names:
        others = tuple(f"{folder}.{other}" for other in names if other != name)
        kin = (f"{folder}.redis",) if name == "redlock" else ()
        assert violations(modules(f"{folder}.{name}"), (*users, *others), kin) == []


def test_fencing_guards_need_no_lock() -> None:
    assert violations(modules("asyncdlock.fencing"), ("asyncdlock.client", "asyncdlock.backends")) == []


def test_checkers_judge_from_the_history_alone() -> None:
    """Also its rows and statistics, which are what a history is made of."""
    wrong = violations(
        modules("harness.judge.checkers"),
        ("harness", "asyncdlock"),
        ("harness.judge.checkers", "harness.history", "harness.history.rows", "harness.history.distribution"),
    )
    assert wrong == []


def test_reports_see_no_server_no_lock_and_no_run() -> None:
    rooms = ("servers", "faults", "resource", "lab", "experiments", "load.run", "load.fleet")
    live = tuple(f"harness.{room}" for room in rooms)
    assert violations(modules("harness.report"), (*live, "asyncdlock")) == []


def test_only_experiments_tie_it_all_together() -> None:
    users = modules("harness.servers", "harness.faults", "harness.resource", "harness.judge")
    assert (
        violations(users, ("harness.experiments", "harness.lab", "harness.load.run", "harness.load.fleet"))
        == []
    )


def test_servers_stand_alone() -> None:
    assert (
        violations(modules("harness.servers"), ("harness",), ("harness.servers", "harness.durations")) == []
    )
    assert violations(modules("harness.servers"), ("asyncdlock",)) == []
