"""Fuzzing with a seed: `python -m tests.attacks.fuzz TARGET COUNT [FIRST]`.

Attacks TARGET, or every target with `all`, with the inputs FIRST to FIRST + COUNT.

An input survives if it is accepted, or refused with the message of a `ParaganError`. A failure is any other
exception, a file written outside of the temporary folder, more than INPUT_S seconds, or more than MEMORY_BYTES.
Prints one JSON object, for each target
{"inputs": int, "refused": int, "failed": {input: last lines of its traceback}}.
"""

from __future__ import annotations

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
from pathlib import Path
from random import Random

from paragan.core.errors import ParaganError, outcome

SEED = 20261123
INPUT_S = 20
MEMORY_BYTES = 1 << 30  # on top of what the process has before the first input

Attack = Callable[[Random, Path], None]

# target: module that holds `TARGETS`
MODULES = {
    **dict.fromkeys(("yaml", "overrides"), "fuzz_config"),
    **dict.fromkeys(("idx", "npz", "zip", "tar", "folder", "index"), "fuzz_data"),
    "images": "fuzz_images",
    **dict.fromkeys(("manifest", "state", "weights", "exported"), "fuzz_runs"),
    **dict.fromkeys(("record", "resumed-record"), "fuzz_record"),
    **dict.fromkeys(("control", "heartbeat", "server"), "fuzz_network"),
}


_written: list[str] = []  # files that the present input has written outside
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_CHANGES = ("os.rename", "os.remove", "os.mkdir", "os.link", "os.symlink", "os.truncate")


def note_writes(root: str) -> None:
    """From now on, remember files that are written outside of `root`; devices and compiled modules aside."""

    def hear(event: str, arguments: tuple) -> None:
        opens = event == "open" and isinstance(arguments[2], int) and arguments[2] & _WRITES
        path = (
            os.fsdecode(arguments[0]) if (opens or event in _CHANGES) and isinstance(arguments[0], (str, bytes)) else ""
        )
        if os.path.isabs(path) and not path.startswith((root, "/dev/")) and "__pycache__" not in path:
            _written.append(f"{event} {path}")

    sys.addaudithook(hear)


class OutOfTime(BaseException):
    """Not an `Exception`: no handler of the code under attack may take it for damage."""


def fuzz(attack: Attack, target: str, count: int, first: int, root: Path) -> dict:
    """Attack with `count` inputs; each is drawn from (SEED, target, its number), so that one can be repeated alone."""
    failed: dict[int, str] = {}
    refused = 0
    for number in range(first, first + count):
        folder = root / str(number)
        folder.mkdir()
        signal.alarm(INPUT_S)
        _written.clear()
        try:
            attack(Random(f"{SEED} {target} {number}"), folder)
        except OutOfTime:
            failed[number] = f"took more than {INPUT_S} s: {traceback.format_exc()[-600:]}"
        except BaseException as error:
            code, line = outcome(error)
            if (code == 2 and line) or isinstance(error, ParaganError):
                refused += 1
            else:
                failed[number] = traceback.format_exc()[-900:]
        finally:
            signal.alarm(0)
            if _written:
                failed[number] = f"written outside: {_written[:3]}"
            shutil.rmtree(folder, ignore_errors=True)
    return {"inputs": count, "refused": refused, "failed": failed}


def out_of_time(*_: object) -> None:
    raise OutOfTime


def main(targets: list[str], count: int, first: int) -> dict[str, dict]:
    signal.signal(signal.SIGALRM, out_of_time)
    warnings.simplefilter("ignore")
    note_writes(tempfile.gettempdir())
    found = {}
    for target in targets:
        attack = importlib.import_module(f"tests.attacks.{MODULES[target]}").TARGETS[target]
        with tempfile.TemporaryDirectory() as root:
            fuzz(attack, target, 1, first, Path(root))  # what is imported late does not count as memory of an input
            used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY_BYTES, resource.RLIM_INFINITY))
            found[target] = fuzz(attack, target, count, first, Path(root))
            resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    return found


if __name__ == "__main__":
    chosen = list(MODULES) if sys.argv[1] == "all" else [sys.argv[1]]
    print(json.dumps(main(chosen, int(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 0)))
