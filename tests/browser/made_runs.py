"""Four runs to compare, made up: other lengths, paces, settings and scores; the last one scored by fewer images."""

import json
from pathlib import Path

from tests.browser import made_run

NAMES = ("base", "wide", "<b>fast", "few")
SAMPLES = (5, 6, 7, 8)


def make(root: Path, steps: int = 100, scores: int = 5, names: tuple[str, ...] = NAMES) -> list[Path]:
    """Run folders; run n is n/5 longer than the first, and a step takes it n + 1 times as long."""
    folders = []
    for number, name in enumerate(names):
        folder = root / name
        folder.parent.mkdir(parents=True, exist_ok=True)
        made_run.make(folder, steps + number * steps // 5, scores + number, SAMPLES[number], size=(120, 120))
        config = {"seed": number, "train": {"kimg": 1000, "batch": 64 * (1 + number % 2)}, "data": {"name": "digits"}}
        (folder / "config.yaml").write_text(json.dumps(config))
        rewrite(folder, number)
        folders.append(folder)
    return folders


def rewrite(folder: Path, number: int) -> None:
    """Slower steps, a score with an interval, and for the last run fewer images of a score."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    last_s = 0.0
    for line in lines:
        last_s = line["seconds"] = max(last_s, line["seconds"] * (1 + number))
        if line["kind"] == "score":
            value = line["fd[judge]"] = line["fd[judge]"] + 10 * number
            line["intervals"] = {"fd[judge]": [value - 2, value + 2]}
            line["num_images"] = 400 if number == 3 else 2000
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
