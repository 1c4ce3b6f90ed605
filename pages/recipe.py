"""docs/reference/recipes/: a page per recipe, from the recipe's comments and the stored record of a run, with a plot.

What follows the config on a page is written by hand, and stays.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from PIL import Image

from benchmarks.plots import Curve, Panel, line_plot
from pages.cells import split
from paragan.core import registry

Line = Mapping[str, Any]
_STEPS_KEPT = 100
_MAX_SHEET = 1024
_MAX_DEPTH = 2  # slashes in names that are stored: d/loss/adversarial
_ABOUT_A_LINE = {"kind", "step", "kimg", "seconds", "num_images", "protocol", "real", "directions"}
_INDEX = """# Recipes

A recipe is a config that `train` takes by name. You can change every setting on the command line.

{} of {} recipes have a complete run, with its curve, samples and scores on their page; the last column has its
final score (one run, one seed). The others are settings only. Those for full-size data and networks need an accelerator
and have not been trained at that size here; narrow copies have, on a CPU ([journal](../../internals/journal.md)).

Times on a CPU are rough values for one idle core. The runs were recorded on a busy machine and took up to four times as
long; times of other hardware come from published logs. Scores by `mnist_cnn` and `cifar_resnet56` are of extractors
that are no longer in the package.

| recipe | what it is | complete run |
|---|---|---|"""
_NO_RUN = "settings only"
_OTHER_FEATURES = """\
These scores were taken with `{}`, {} that is no longer in the package. The recipe now uses a packaged
extractor; its scores do not compare with these."""
_FORMER = {"mnist_cnn": "a LeNet", "cifar_resnet56": "a ResNet-56"}


def pages(folder: Path) -> dict[Path, str]:
    """A page per recipe, and the table of all."""
    names = registry.names("recipes")
    scores = {name: _last_score(_record(folder, name)) for name in names}
    rows = [f"| [{name}]({name}.md) | {_brief(name)} | {score or _NO_RUN} |" for name, score in scores.items()]
    head = _INDEX.format(sum(map(bool, scores.values())), len(names))
    by_path = {folder / f"{name}.md": "\n\n".join(_blocks(folder, name)) + "\n" for name in names}
    return {folder / "index.md": "\n".join([head, *rows]) + "\n", **by_path}


def _brief(name: str) -> str:
    """What a recipe is, in a few words: its first comment, of a long one what is before the colon."""
    text = _comments(name)[0].rstrip(".")
    return text if not split(text)[1] else split(text.partition(": ")[0])[0]


def store_run(run: Path, folder: Path, name: str) -> None:
    """Store the scores, the end and about a hundred steps of a run's record, and its last sample sheet.

    A sheet of more than `_MAX_SHEET` pixels in width is made smaller by a whole number.
    Values of each of several discriminators, such as d/real/mpd/0, are left out.
    """
    lines = _read(run / "metrics.jsonl")
    steps = [number for number, line in enumerate(lines) if line["kind"] == "step"]
    chosen = set(steps[:: max(1, -(-len(steps) // _STEPS_KEPT))])
    stored = [line for number, line in enumerate(lines) if line["kind"] in ("score", "end") or number in chosen]
    brief = [{key: value for key, value in line.items() if key.count("/") <= _MAX_DEPTH} for line in stored]
    (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in brief), encoding="utf-8")
    with Image.open(max((run / "samples").glob("step-*.png"))) as sheet:
        sheet.reduce(-(-sheet.width // _MAX_SHEET)).save(folder / f"{name}.png", optimize=True)


def _blocks(folder: Path, name: str) -> Iterator[str]:
    source, (first, *others) = registry.find_source("recipes", name), _comments(name)
    path = re.search(r"data\.path=\w+", first)
    argument = f" {path.group()}" if path else ""
    yield f"# {name}"
    yield first
    yield from others
    yield f"```sh\n./run train {name}{argument}\n```"
    yield from _run(folder, name)
    settings = [line for line in source.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    yield "## Config"
    yield "```yaml\n" + "\n".join(settings) + "\n```"
    yield from _written_by_hand(folder / f"{name}.md")


def _written_by_hand(page: Path) -> Iterator[str]:
    """Yield what follows the config on a stored page: no program writes it."""
    text = page.read_text(encoding="utf-8") if page.exists() else ""
    _, _, rest = text.partition("\n## Config\n")[2].partition("\n```\n")
    if rest.strip():
        yield rest.strip()


def _run(folder: Path, name: str) -> Iterator[str]:
    """Yield samples, scores and the plot of the stored run."""
    record = _record(folder, name)
    if not record:
        yield "There is no complete run of this recipe."
        return
    last = record[-1]
    yield "## Example run"
    if (folder / f"{name}.png").exists():
        yield f"![Samples of {name} at the end of its run]({name}.png)"
    yield f"{last['step']:,} steps, {last['kimg']:g} thousand images."
    scores = [line for line in record if line["kind"] == "score"]
    if scores:
        yield _scores(scores)
        extractor = re.search(r"\[(.+)\]", _main(scores[-1]))
        if extractor and (network := _FORMER.get(extractor.group(1))):
            yield _OTHER_FEATURES.format(extractor.group(1), network)
    yield f"![Scores and losses of {name} over its run]({name}.svg)"


def plots(folder: Path) -> dict[Path, str]:
    """Scores and losses of every stored run as SVG: path and text. Requires matplotlib."""
    names = [path.stem for path in sorted(folder.glob("*.jsonl"))]
    return {folder / f"{name}.svg": _plot(name, _read(folder / f"{name}.jsonl")) for name in names}


def _plot(name: str, record: list[Line]) -> str:
    scores = [line for line in record if line["kind"] == "score"]
    title = "adversarial losses"
    keys = {f"loss of {side.upper()}": f"{side}/loss/adversarial" for side in "dg"}
    if not any(key in line for line in record for key in keys.values()):
        title = "losses"
        names = sorted({key for line in record for key in line if key.split("/")[1:2] == ["loss"]})
        keys = {key: key for key in names}
    curves = [_curve(label, record, key, tone) for tone, (label, key) in enumerate(keys.items())]
    panels = [Panel(title, "thousands of real images", curves)]
    if scores:
        main = _main(scores[-1])
        panels.insert(0, Panel(main, "thousands of real images", [_curve(main, scores, main, 2)]))
    return line_plot(f"Scores and losses of {name}", [panels])


def _curve(label: str, lines: list[Line], key: str, tone: int) -> Curve:
    return Curve(label, [(line["kimg"], line[key], 0.0) for line in lines if key in line], tone)


def _scores(scores: list[Line]) -> str:
    """A table with a row per metric: first and last value and, if recorded, that of real images."""
    first, last, real = scores[0], scores[-1], scores[-1].get("real", {})
    names = [name for name in last if name not in _ABOUT_A_LINE and isinstance(last[name], float)]
    columns = [f"{first['kimg']:g} kimg", f"{last['kimg']:g} kimg", *(["real images"] if real else [])]
    head = f"| | {' | '.join(columns)} |\n|---|{'---|' * len(columns)}"
    values = [[first.get(name), last[name], *([real.get(name)] if real else [])] for name in names]
    rows = [f"| `{name}` | {' | '.join(map(_number, row))} |" for name, row in zip(names, values, strict=True)]
    return "\n".join([head, *rows])


def _last_score(record: list[Line]) -> str:
    scores = [line for line in record if line["kind"] == "score"]
    if record and not scores:
        return "no score"
    return f"`{_main(scores[-1])}` {_number(scores[-1][_main(scores[-1])])}" if scores else ""


def _main(score: Line) -> str:
    """The Fréchet distance, or else the first metric."""
    names = [name for name in score if name not in _ABOUT_A_LINE]
    return next((name for name in names if name.startswith("fd[")), names[0])


def _number(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float | int) else ""


def _comments(name: str) -> list[str]:
    """The comments of a recipe, one paragraph per line."""
    lines = registry.find_source("recipes", name).read_text(encoding="utf-8").splitlines()
    return [line.lstrip("# ").rstrip() for line in lines if line.startswith("#")]


def _record(folder: Path, name: str) -> list[Line]:
    path = folder / f"{name}.jsonl"
    return _read(path) if path.exists() else []


def _read(path: Path) -> list[Line]:
    """The lines of a record without a truncated one."""
    lines = []
    for text in path.read_text(encoding="utf-8").splitlines():
        try:
            line = json.loads(text)
        except ValueError:
            continue
        if isinstance(line, dict) and {"kind", "step", "kimg", "seconds"} <= line.keys():
            lines.append(line)
    return lines
