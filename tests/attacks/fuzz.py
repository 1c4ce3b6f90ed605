"""Fuzzing with a seed: `python -m tests.attacks.fuzz TARGET COUNT [FIRST | --shrink]`.

Attacks TARGET, or every target with `all`, with the inputs FIRST to FIRST + COUNT, or with --shrink with COUNT inputs
that Hypothesis chooses, which makes one that fails as small as it can.

An input survives if it is accepted, or refused with the message of a `ParaganError`. A failure is any other
exception, a file written outside of the temporary folder, more than INPUT_S seconds, or more than MEMORY_BYTES.
Prints one JSON object, for each target
{"inputs": int, "refused": int, "failed": {input: last lines of its traceback}}.
"""

import importlib
import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random

from hypothesis import HealthCheck, given, settings
from hypothesis.configuration import set_hypothesis_home_dir
from hypothesis.errors import Flaky, StopTest, UnsatisfiedAssumption
from hypothesis.strategies import randoms

from paragan.core.errors import ParaganError, outcome

SEED = 20261123
INPUT_S = 20
MEMORY_BYTES = 1 << 30  # on top of what the process has before the first input

_EXAMPLES = settings(
    derandomize=True, database=None, deadline=None, report_multiple_bugs=False, suppress_health_check=[*HealthCheck]
)

Attack = Callable[[Random, Path], None]

# target: module that holds `TARGETS`
MODULES = {
    **dict.fromkeys(("yaml", "overrides"), "fuzz_config"),
    **dict.fromkeys(("idx", "npz", "zip", "tar", "folder", "index", "images"), "fuzz_data"),
    **dict.fromkeys(("manifest", "state", "weights", "exported", "record", "resumed-record"), "fuzz_runs"),
    **dict.fromkeys(("control", "heartbeat", "server"), "fuzz_network"),
    **dict.fromkeys(("address", "bucket"), "fuzz_bucket"),
    **dict.fromkeys(("labels", "tables"), "fuzz_labels"),
    **dict.fromkeys(("published", "statistics", "tokens"), "fuzz_foreign"),
}

_written: list[str] = []  # files that the present input has written outside
_inside: list[str] = []  # folders that it may write to
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_CHANGES = ("os.rename", "os.remove", "os.mkdir", "os.link", "os.symlink", "os.truncate")


def note_writes(root: str) -> None:
    """From now on, remember files that are written outside of `root`; devices and compiled modules aside."""
    if _inside:
        _inside[:] = [root]
        return
    _inside.append(root)

    def hear(event: str, arguments: tuple) -> None:
        opens = event == "open" and isinstance(arguments[2], int) and arguments[2] & _WRITES
        if not opens and event not in _CHANGES:
            return
        changed = arguments[1] if event in ("os.link", "os.symlink") else arguments[0]
        path = os.fsdecode(changed) if isinstance(changed, (str, bytes)) else ""
        if os.path.isabs(path) and not path.startswith((*_inside, "/dev/")) and "__pycache__" not in path:
            _written.append(f"{event} {path}")

    sys.addaudithook(hear)


class OutOfTime(BaseException):
    """Not an `Exception`: no handler of the code under attack may take it for damage."""


def fuzz(attack: Attack, target: str, count: int, first: int, root: Path) -> dict:
    """Attack with `count` inputs; each is drawn from (SEED, target, its number), so that one can be repeated alone."""
    failed: dict[int, str] = {}
    refused = 0
    for number in range(first, first + count):
        found = attempt(attack, Random(f"{SEED} {target} {number}"), root / str(number))
        refused += found is True
        if isinstance(found, str):
            failed[number] = found
    return {"inputs": count, "refused": refused, "failed": failed}


def fuzz_and_shrink(attack: Attack, count: int, root: Path) -> dict:
    """Attack with `count` inputs of Hypothesis, which makes the first that fails as small as it can."""
    tried: list[object] = []
    failed: dict[int, str] = {}

    set_hypothesis_home_dir(root)

    @settings(_EXAMPLES, max_examples=count)
    @given(randoms(use_true_random=False))
    def one(draws: Random) -> None:
        found = attempt(attack, draws, root / str(len(tried)))
        tried.append(found)
        if isinstance(found, str):
            failed[0] = found  # the last is the smallest
            raise AssertionError(found)

    with suppress(AssertionError, Flaky):  # flaky: an input that took too long only once
        one()
    return {"inputs": len(tried), "refused": tried.count(True), "failed": failed}


def attempt(attack: Attack, draws: Random, folder: Path, limit_s: int = INPUT_S) -> str | bool:
    """Attack once: whether the input was refused, or why the attack succeeded. limit_s: 0: none."""
    folder.mkdir()
    signal.alarm(limit_s)
    _written.clear()
    found: str | bool = False
    try:
        attack(draws, folder)
    except OutOfTime:
        found = f"took more than {limit_s} s: {traceback.format_exc()[-600:]}"
    except (StopTest, UnsatisfiedAssumption):  # Hypothesis ends an input that draws too much
        raise
    except BaseException as error:
        code, line = outcome(error)
        found = (code == 2 and bool(line)) or isinstance(error, ParaganError) or traceback.format_exc()[-900:]
    finally:
        signal.alarm(0)
        shutil.rmtree(folder, ignore_errors=True)
    return f"written outside: {_written[:3]}" if _written else found


def out_of_time(*_: object) -> None:
    raise OutOfTime


def main(targets: list[str], count: int, first: int, shrinks: bool = False) -> dict[str, dict]:
    signal.signal(signal.SIGALRM, out_of_time)
    warnings.simplefilter("ignore")
    found = {}
    for target in targets:
        attack = importlib.import_module(f"tests.attacks.{MODULES[target]}").TARGETS[target]
        with tempfile.TemporaryDirectory() as root:
            note_writes(tempfile.gettempdir())
            # What is imported late, or made once, counts neither as memory nor as time of an input.
            attempt(attack, Random(f"{SEED} {target} {first}"), Path(root) / "first", limit_s=0)
            note_writes(root)
            used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY_BYTES, resource.RLIM_INFINITY))
            inputs = (attack, count, Path(root)) if shrinks else (attack, target, count, first, Path(root))
            found[target] = (fuzz_and_shrink if shrinks else fuzz)(*inputs)
            resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    return found


if __name__ == "__main__":
    chosen = list(MODULES) if sys.argv[1] == "all" else [sys.argv[1]]
    shrinks = sys.argv[3:] == ["--shrink"]
    print(json.dumps(main(chosen, int(sys.argv[2]), int(sys.argv[3]) if sys.argv[3:] and not shrinks else 0, shrinks)))
