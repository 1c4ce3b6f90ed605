"""Does `tune` mend learning rates that are ten times too high or too low? On digits, by runs at the found rates.

    python -m benchmarks.tune_digits [--seeds 3] [--trials 20] [--kimg 12] [--keep FOLDER] [--no-result]

Each case spoils the rates of G and D of recipe `digits` by a factor of ten, in either direction. `tune` searches four
decades around the recipe's rates by trials of `--kimg`; then the recipe is trained at its whole length with the spoilt
rates and with the found ones. The score is `fd` by one judge for each seed. Studies and runs stay in FOLDER, so a table
that was stopped resumes.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from benchmarks.record import write
from paragan.cli.main import main as paragan
from paragan.config import read_recipe
from paragan.export.bundle import read_score

RATE = read_recipe("digits").g.optimizer.lr
CASES = {"g, d x 10": (10, 10), "g, d / 10": (0.1, 0.1), "g x 10, d / 10": (10, 0.1), "g / 10, d x 10": (0.1, 10)}
QUIET = ["every.sample_kimg=0", "evaluation.metrics=fd", "evaluation.resamples=0", "writers=[jsonl]"]


def rates(g: float, d: float) -> list[str]:
    return [f"g.optimizer.lr={g}", f"d.optimizer.lr={d}"]


def score(words: list[str], out: Path) -> float:
    """The last `fd` of the whole recipe; infinite without one."""
    code = paragan(["train", "digits", *words, "--out", str(out)])
    assert code in (0, 2) and (out / "exit.json").exists(), "a run that another process trains is no result"
    return next((value for name, value in read_score(out).items() if name.startswith("fd[")), float("inf"))


def found_rates(seed: int, trials: int, kimg: float, folder: Path) -> list[str]:
    """Settings of the best trial of a study over four decades of both rates."""
    space = [f"{side}.optimizer.lr=log:{RATE / 100}..{RATE * 100}" for side in "gd"]
    words = [*space, *QUIET, f"seed={seed}", f"every.score_kimg={kimg / 4}", "--kimg", str(kimg)]
    assert paragan(["tune", "digits", *words, "--trials", str(trials), "--out", str(folder)]) == 0
    rows = [line.split(",") for line in (folder / "trials.csv").read_text().splitlines()[1:]]
    best = min((row for row in rows if row[1] == "complete"), key=lambda row: float(row[2]))
    return rates(float(best[-2]), float(best[-1]))


def run(seeds: int, trials: int, kimg: float, folder: Path) -> list[dict]:
    """A row for each seed and case: scores at the spoilt and at the found rates."""
    rows = []
    for seed in range(seeds):
        found = found_rates(seed, trials, kimg, folder / f"study-{seed}")
        common = [*QUIET, f"seed={seed}"]
        after = score([*common, *found], folder / f"found-{seed}")
        for name, (g, d) in CASES.items():
            before = score([*common, *rates(RATE * g, RATE * d)], folder / f"spoilt-{seed}-{g}-{d}")
            rows.append({"seed": seed, "spoilt": name, "fd_spoilt": before, "found": found, "fd_found": after})
            print(f"seed {seed}, {name}: {before:.4g} -> {after:.4g} at {' '.join(found)}", flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--kimg", type=float, default=12.0, help="length of a trial")
    parser.add_argument("--keep", type=Path, default=Path(tempfile.gettempdir()) / "paragan-tune-digits")
    parser.add_argument("--no-result", action="store_true", help="write no file into benchmarks/results")
    given = parser.parse_args()
    rows = run(given.seeds, given.trials, given.kimg, given.keep)
    better = sum(row["fd_found"] < row["fd_spoilt"] for row in rows)
    print(f"{better} of {len(rows)} spoilt recipes are worse than the found rates")
    if not given.no_result:
        write("tune-digits", {"trials": given.trials, "kimg": given.kimg, "rows": rows})


if __name__ == "__main__":
    main()
