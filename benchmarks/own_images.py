"""Recipe `own` on folders that nobody tuned, within a limit of CPU time: `python -m benchmarks.own_images DIR`.

DIR: made by `python -m benchmarks.own_folders DIR`. Each run is the command that `data check` prints, with a seed, a
schedule of scores and no end but the limit; its time counts from the command to the interrupt, the classifier for
the scores included.
"""

import json
import math
import os
import re
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks import record
from benchmarks.command import run_command
from benchmarks.own_folders import CHECKING
from paragan.core.errors import ParaganError

SCORE_KIMG = 16  # between scores at 32 px; at other sizes by the number of pixels
LOST = 100.0  # largest R1 term: at most 5.1 in runs that held, 667 and more in lost ones
TICKS = os.sysconf("SC_CLK_TCK")
app = typer.Typer(add_completion=False)


@app.command()
def main(
    folders: Path,
    names: str = ",".join(CHECKING),
    sizes: str = "32,64",
    seeds: int = 3,
    cpu_s: float = 480,
    out: Path = Path("runs/own-images"),
    words: Annotated[list[str] | None, typer.Option(help="KEY=VALUE for every run, to choose settings.")] = None,
    result: str = "own-images",
) -> None:
    """Train every folder at every size with every seed, one after the other; finished runs are read again."""
    runs = []
    for name in names.split(","):
        for size in map(int, sizes.split(",")):
            for seed in range(seeds):
                run = out / f"{name}-{size}-{seed}"
                if not (run / "exit.json").exists():
                    train(command(folders / name, size, seed, run, words or ()), cpu_s)
                runs.append({"folder": name, "size": size, "seed": seed, **outcome(run)})
                print(json.dumps(runs[-1]))
    lost = sum(run["lost"] for run in runs)
    fell = sum(run["fell"] for run in runs)
    print(f"{lost} of {len(runs)} runs lost; fd fell from third to third in {fell}")
    record.write(result, {"cpu_s": cpu_s, "words": list(words or ()), "lost": lost, "fell": fell, "runs": runs})


def command(folder: Path, size: int, seed: int, run: Path, words: Sequence[str]) -> list[str]:
    program = [sys.executable, "-m", "paragan"]
    check = subprocess.run([*program, "data", "check", str(folder)], capture_output=True, text=True, timeout=600)
    printed = re.search(r"^To train: paragan (train .*)$", check.stdout, re.MULTILINE)
    if printed is None:
        raise ParaganError(f"{folder}: data check prints no command: {check.stdout[-200:]}{check.stderr[-200:]}")
    schedule = [f"every.score_kimg={SCORE_KIMG * (32 / size) ** 2:g}", "train.kimg=100000"]
    own = [word for word in printed[1].split() if not word.startswith("data.size=")]
    return [*program, *own, f"data.size={size}", f"seed={seed}", *schedule, *words, "--out", str(run)]


def train(command: Sequence[str], cpu_s: float) -> None:
    """Run a command until it has taken `cpu_s` seconds of CPU, then interrupt it as Ctrl-C does."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # `nohup … &` leaves it ignored, in children too
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    process = subprocess.Popen(command, env=environment)
    while process.poll() is None and _cpu_seconds(process.pid) < cpu_s:
        time.sleep(0.2)
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
    try:
        process.wait(600)
    except subprocess.TimeoutExpired:
        process.kill()
        raise ParaganError(f"{' '.join(command)}: not ended 600 s after the interrupt") from None


def _cpu_seconds(pid: int) -> float:
    """User and system time of a process of Linux, in seconds; infinite when it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return math.inf
    return (int(fields[11]) + int(fields[12])) / TICKS


def outcome(run: Path) -> dict[str, Any]:
    """Return what became of a run: `lost` (R1 exploded, or fd far from its best), `fell` (fd from third to third)."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    scores = [line for line in lines if line["kind"] == "score" and line["kimg"] > 0]
    key = next((name for line in scores for name in line if name.startswith("fd[")), "fd")
    fd = {line["kimg"]: line[key] for line in scores if key in line}
    terms = [line["d/loss/r1"] for line in lines if line["kind"] == "step" and "d/loss/r1" in line]
    values = list(fd.values())
    lost = not values or max(terms, default=0) > LOST or values[-1] > 2 * min(values)
    return {
        "kimg": lines[-1].get("kimg"),
        "fd": {f"{kimg:.0f}": round(value, 3) for kimg, value in fd.items()},
        "real": next((line["real"].get(key) for line in scores if "real" in line), None),
        "largest_r1": round(max(terms, default=math.nan), 3),
        "lost": lost,
        "fell": _fell(values),
    }


def _fell(values: Sequence[float]) -> bool:
    """Whether the means of the three thirds of a list fall."""
    third = len(values) // 3
    if third == 0:
        return False
    means = [statistics.mean(part) for part in (values[:third], values[third : -third or None], values[-third:])]
    return means[0] > means[1] > means[2]


if __name__ == "__main__":
    sys.exit(run_command(app, "own_images"))
