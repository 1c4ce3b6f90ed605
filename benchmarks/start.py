"""Start of the command line: CPU seconds of `paragan --help`, and up to the first step of `train digits`.

    python -m benchmarks.start CHECKOUT [pairs]

Another checkout and this one in turn, each in a new process of this Python, at one thread. The classifier that scores
the digits is cached where the version caches it: a first run of each is not counted.
"""

from __future__ import annotations

import os
import re
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.paired_timing import keep, ratio_of

HERE = Path(__file__).resolve().parents[1]
TIMEOUT_S = 900
HELP = "import sys; from paragan.cli.main import main; sys.exit(main(['--help']))"
# replaces the events of a step, when the module that yields them is imported
FIRST_STEP = """
import importlib.util, os, sys, time

class Finder:
    name = "paragan.engine.step_log"

    def find_spec(self, name, path=None, target=None):
        if name != self.name:
            return None
        self.name = ""
        spec = importlib.util.find_spec(name)
        execute = spec.loader.exec_module

        def executed(module):
            execute(module)
            module.StepLog.events = ended

        spec.loader.exec_module = executed
        return spec

def ended(*arguments, **options):
    print(f"CPU {time.process_time()}", file=sys.stderr, flush=True)
    os._exit(0)

sys.meta_path.insert(0, Finder())
from paragan.cli.main import main
main(["train", "digits", "--out", sys.argv[1]])
"""


def run(checkout: Path, code: str, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(checkout / "src"), "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-c", code, *words]
        options = {"env": environment, "cwd": folder, "timeout": TIMEOUT_S}
        return subprocess.run(command, capture_output=True, text=True, check=True, **options)


def help_s(checkout: Path) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    run(checkout, HELP)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def first_step_s(checkout: Path) -> float:
    found = re.search(r"^CPU (.*)$", run(checkout, FIRST_STEP, "run").stderr, re.MULTILINE)
    assert found is not None
    return float(found[1])


def main(checkout: str, pairs: str = "15") -> None:
    other = Path(checkout).absolute()
    ratios = {}
    for name, seconds in {"paragan --help": help_s, "first step of digits": first_step_s}.items():
        seconds(other), seconds(HERE)
        times = []
        for number in range(int(pairs)):
            if number % 2:
                before_s = seconds(other)
                times.append((seconds(HERE), before_s))
            else:
                times.append((seconds(HERE), seconds(other)))
        ratios[f"{name}: this / {other.name}"] = ratio_of(times)
    keep("start", ratios, "CPU seconds of one process; judge of the digits cached")


if __name__ == "__main__":
    main(*sys.argv[1:])
