"""What every test may rely on."""

import gc
import os
import re
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import takewhile
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests import many_cases, scheduling
from tests.needs_extensions import EXTENSIONS, needed_by
from tests.nightly import SLOW
from tests.processes import children, kill

os.environ["PARAGAN_OFFLINE"] = "1"  # no test waits for a network
CACHE = tempfile.TemporaryDirectory(prefix="paragan-cache-")
os.environ["PARAGAN_CACHE"] = CACHE.name
os.environ["PARAGAN_COMMAND"] = "paragan"  # in messages, wherever the tests are started from
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # under nohup, or as a background job of a script
    signal.signal(signal.SIGINT, signal.default_int_handler)  # the processes that tests start must not inherit it
for number in (signal.SIGHUP, signal.SIGUSR1, signal.SIGQUIT):  # SIGQUIT: a shell's background job ignores it too
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, lambda *_: None)  # likewise; the tests themselves still survive a closed terminal

gc.disable()  # until all tests are collected: modules, their trees and their tests are no garbage

ROOT = Path(__file__).resolve().parent.parent


_IMPORTED = re.compile(r"^from paragan\.extensions(?:\.| import )(\w+)|^from tests\.extensions\.(\w+)", re.MULTILINE)


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Files that import an extension at their top are left out where somebody has removed it."""
    if collection_path.suffix != ".py":
        return None
    imported = {name for names in _IMPORTED.findall(collection_path.read_text()) for name in names if name}
    imported |= needed_by(f"{collection_path.relative_to(ROOT)}::") if collection_path.is_relative_to(ROOT) else set()
    return True if imported - EXTENSIONS else None


def pytest_itemcollected(item: pytest.Item) -> None:
    """Tests of an extension, and others that need one, have its mark: `pytest -m 'extension(grid=True)'`."""
    if needed := needed_by(item.nodeid):
        item.add_marker(pytest.mark.extension(**dict.fromkeys(needed, True)))
    if item.nodeid.startswith(SLOW):
        item.add_marker(pytest.mark.slow)


@pytest.hookimpl(tryfirst=True)  # before `-m` chooses
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    extra = many_cases.extra_cases(item.nodeid for item in items if item.get_closest_marker("slow") is None)
    for item in items:
        if item.nodeid in extra:
            item.add_marker(pytest.mark.slow)
    scheduling.order(items)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    return scheduling.ByFile(config, log) if config.option.dist == "loadfile" else None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    before = scheduling.cpu_s()
    yield
    item.user_properties.append(("cpu_s", round(scheduling.cpu_s() - before, 2)))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Name what has become slow: it gets smaller sizes, a shared fixture, the mark `slow`, or four cases a day."""
    passed = terminalreporter.stats.get("passed", [])
    for title, lines in (
        (f"unit tests over {scheduling.MAX_UNIT_S} s of CPU", list(scheduling.too_long(passed))),
        (f"tests of many cases over {many_cases.MAX_CASES_S} s of CPU", list(many_cases.costly(passed))),
    ):
        if lines:
            terminalreporter.section(title)
            terminalreporter.write_line("\n".join(lines))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--cpu", choices=["this", "fp32", "bf16"], default="this", help="the precision `auto` chooses on the CPU"
    )


@pytest.fixture(autouse=True, scope="session")
def _cpu(request: pytest.FixtureRequest) -> Iterator[None]:
    """The outcome of no test may depend on the processor: `./run test --cpu fp32`, `./run test --cpu bf16`."""
    chosen = request.config.getoption("--cpu")
    if chosen == "this":
        yield
        return
    from paragan.hardware import precision

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(precision, "_cpuinfo", lambda: "amx_bf16" if chosen == "bf16" else "")
        yield


SIGNS_MATTER = ("tests/training/", "tests/gpu/", "tests/unit/engine/test_telemetry.py")  # what telemetry finds in a run


@contextmanager
def _imports_forgotten() -> Iterator[None]:
    """Restore the module path afterwards, and forget modules that were imported from temporary folders."""
    path, newest = list(sys.path), next(reversed(sys.modules))
    yield
    sys.path[:] = path
    later = takewhile(lambda name: name != newest, reversed(sys.modules))  # thousands came before
    for name in [name for name in later if is_temporary(sys.modules[name])]:
        del sys.modules[name]


LASTING = (str(ROOT), sys.prefix, sys.base_prefix)  # though they may lie in the temporary folder


def is_temporary(module: ModuleType) -> bool:
    """Whether a module was imported from the temporary folder, and neither from the project nor the installation."""
    held = vars(module)  # `getattr` would run code of lazy modules
    folders = [held.get("__file__"), *(held.get("__path__") or ())]  # a folder may be a namespace without a file
    outside = [str(folder) for folder in folders if not str(folder).startswith(LASTING)]
    return any(folder.startswith(tempfile.gettempdir()) for folder in outside)


@pytest.fixture(autouse=True)
def _own_cache(request: pytest.FixtureRequest) -> Iterator[None]:
    """No test reads the classifier that another one has trained."""
    before = os.environ["PARAGAN_CACHE"]
    os.environ["PARAGAN_CACHE"] = f"{CACHE.name}/{abs(hash(request.node.nodeid))}"
    yield
    os.environ["PARAGAN_CACHE"] = before


@pytest.fixture(autouse=True, scope="module")
def _no_imports_of_earlier_files() -> Iterator[None]:
    """Also what the fixtures of a whole file import. What is alive then (libraries, caches) is no garbage later."""
    with _imports_forgotten():
        yield
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _no_imports_of_earlier_tests() -> Iterator[None]:
    """Commands append the working directory to the path: what a test imported from there is forgotten after it."""
    with _imports_forgotten():
        yield


def pytest_collection_finish() -> None:
    """Collections of garbage skip the thousands of tests, which live as long as the process."""
    gc.freeze()
    gc.enable()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """One thread per process, so that sums have one order; torch is left alone until a test has imported it."""
    for mark in item.iter_markers("extension"):
        if missing := mark.kwargs.keys() - EXTENSIONS:
            pytest.skip(f"paragan was made without {', '.join(sorted(missing))}")
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The temporary folder, as the working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="session")
def data_root() -> Path:
    """The folder of real data sets: PARAGAN_DATA, or `shared/data` beside the repository."""
    folder = Path(os.environ.get("PARAGAN_DATA", ROOT.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no real data in {folder} (set PARAGAN_DATA)")
    return folder


@pytest.fixture(scope="module")
def quick_judge():
    """Where scores are told and their values do not matter: judges that are trained for 20 steps, not for 500."""
    from paragan.features.base import classifier as classifier

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(classifier, "STEPS", 20)
        yield


@pytest.fixture(autouse=True, scope="module")
def _few_images_of_telemetry(request: pytest.FixtureRequest) -> Iterator[None]:
    """What runs measure of themselves takes longer than the few steps of most runs here, and is measured less.

    Telemetry makes four passes over 256 images; 32 do, but where signs matter. A grid tries every executor.
    """
    telemetry = sys.modules.get("paragan.engine.telemetry")
    executors = sys.modules.get("paragan.extensions.grid.executors.choice")
    with pytest.MonkeyPatch.context() as patch:
        if telemetry is not None and not request.node.nodeid.startswith(SIGNS_MATTER):
            patch.setattr(telemetry, "NUM_IMAGES", 32)
        if executors is not None:
            patch.setattr(executors, "_STEPS", 1)
            patch.setattr(executors, "_ROUNDS", 1)
        yield


@pytest.fixture(scope="session")
def transformer_file(tmp_path_factory):
    """A tiny vision transformer with random weights, exported by torch: the network and its file."""
    from tests.exported_programs import TinyTransformer, exported

    path = tmp_path_factory.mktemp("programs") / "tiny-vit.pt2"
    return exported(TinyTransformer(depth=1), path), path


@pytest.fixture(scope="session")
def maps_file(tmp_path_factory):
    """A network that returns maps of two layers, for images of any size: the network and its file."""
    from tests.exported_programs import TinyMaps, exported

    path = tmp_path_factory.mktemp("programs") / "maps.pt2"
    return exported(TinyMaps(), path, is_any_size=True), path


@pytest.fixture(scope="module")
def programs_read_once():
    """Programs of torch are read once per file and time of its change: this takes longer than most of their uses."""
    import torch

    whole, programs = torch.export.load, {}

    def load(file: Any) -> Any:
        changed = os.fstat(file.fileno())
        key = (file.name, changed.st_mtime_ns, changed.st_size)
        if key not in programs:
            programs[key] = whole(file)
        return programs[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.export, "load", load)
        yield


@pytest.fixture
def started():
    """Processes that are gone, with all below them, when the test is."""
    found = []
    yield found
    for process in found:
        for pid in [*children(process.pid), process.pid]:
            kill(pid)
        with suppress(ValueError):  # it was read to its end before
            process.communicate(timeout=60)


@pytest.fixture
def bucket(monkeypatch):
    """A bucket in memory, with faults: `tests/memory_bucket.py`."""
    pytest.importorskip("obstore", reason="obstore comes with the extra `dev`")
    from tests.memory_bucket import memory_bucket

    return memory_bucket(monkeypatch)
