"""fd[mnist] of `dcgan-mnist` over its run, as a user starts it, against the final one of `vanilla-mnist`.

Aim: at most a tenth of it, within 20 minutes.

    python -m benchmarks.dcgan_mnist DATA_FOLDER RUNS_FOLDER [seeds]

DATA_FOLDER holds the MNIST idx files. Runs stay in RUNS_FOLDER, with images; one that was stopped resumes.
`vanilla-mnist` is read from its newest result with this extractor: `python -m benchmarks.vanilla_mnist` writes one.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.record import RESULTS, write

FD = "fd[mnist]"


def trained(data: str, folder: Path, seed: int) -> dict[str, Any]:
    """The command, and what its record holds: kimg, seconds since the start, distance and label accuracy by score.

    cpu_seconds: of this call; a run that went on has spent others before.
    """
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    words = [
        "train",
        "dcgan-mnist",
        f"data.path={data}",
        f"seed={seed}",
        "evaluation.features=mnist",
        "--out",
        str(folder),
    ]
    subprocess.run([sys.executable, "-m", "paragan", *words], check=True, timeout=3600)
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    first = {
        line["kimg"]: line for line in reversed(lines) if line["kind"] == "score"
    }  # a run that goes on scores again
    wanted = ("kimg", "seconds", FD, "label_accuracy", "class_variance_mean", "coverage")
    scores = [{key: line[key] for key in wanted} for _, line in sorted(first.items())]
    return {
        "seed": seed,
        "cpu_seconds": round(resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before),
        "scores": scores,
    }


def vanilla() -> float:
    """Mean final distance of `vanilla-mnist` over the seeds of its newest result."""
    found = [json.loads(path.read_text()) for path in sorted(RESULTS.glob("*-vanilla-mnist.json"))]
    comparable = [result[FD]["library"] for result in found if FD in result]
    if not comparable:
        raise SystemExit(f"no result of vanilla-mnist has {FD}; run `python -m benchmarks.vanilla_mnist` first")
    curves = comparable[-1]
    return sum(curve[-1] for curve in curves) / len(curves)


def main(data: str, runs: str, seeds: int = 1) -> None:
    rows = [trained(data, Path(runs) / f"dcgan-mnist-{seed}", seed) for seed in range(seeds)]
    ratios = [run["scores"][-1][FD] / vanilla() for run in rows]
    print(f"final {FD} / that of vanilla-mnist ({vanilla():.1f}):", [round(ratio, 4) for ratio in ratios])
    write("dcgan-mnist", {"runs": rows, "final of vanilla-mnist": vanilla(), "ratio": ratios})


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], *(int(a) for a in sys.argv[3:]))
