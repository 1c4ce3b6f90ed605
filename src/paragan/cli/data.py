"""`paragan data`: checks of a data set before training, and its conversion into shards."""

from __future__ import annotations

import json
import shlex
import warnings
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from paragan.cli.arguments import AsJson
from paragan.cli.progress import show_progress
from paragan.config import read_data_settings, read_recipe
from paragan.core.command import program_command
from paragan.core.errors import ParaganError
from paragan.core.printable import counted, to_printable

if TYPE_CHECKING:
    from paragan.datasets.preparation.dataset_report import DatasetReport
    from paragan.datasets.preparation.prepare import PreparedShards

app = typer.Typer(no_args_is_help=True, help="Check images before training on them, or pack them into shards.")
_MAX_LISTED = 10

_IMAGES = "What `train` and `data prepare` read: folders, archives, shards, Parquet; also .npz and .npy files."
Images = Annotated[str, typer.Argument(metavar="PATH", help=_IMAGES)]
_SETTINGS = "Settings of `train`: data.KEY=value, such as data.labels=FILE.csv or data.range=[0,4095]."
Settings = Annotated[list[str] | None, typer.Argument(metavar="[data.KEY=VALUE]...", help=_SETTINGS)]
_SIZE = "Image size to train with, as 64 or 96x160 (default: chosen from the images)."
Size = Annotated[str | None, typer.Option(metavar="PIXELS", help=_SIZE)]
_SOURCE = "A folder, .zip, .tar or .parquet file, a folder of tar or Parquet files, or of `save_to_disk`."
Unprepared = Annotated[str, typer.Argument(metavar="SRC", help=_SOURCE)]
Into = Annotated[Path, typer.Argument(metavar="OUT", help="Folder for the shards. Run the command again to resume.")]
_RESIZED = "Resize the images to this size, as 64 or 96x160, once (default: store the files unchanged)."
Resized = Annotated[str | None, typer.Option("--size", metavar="PIXELS", help=_RESIZED)]
Quality = Annotated[int | None, typer.Option(help="Quality of --format jpeg, 1 to 100 (default: 95).")]
PerShard = Annotated[int, typer.Option("--shard-samples", min=1, help="Samples in a shard.")]
Threads = Annotated[int | None, typer.Option(min=1, help="Threads (default: one per CPU core, at most 16).")]
FileFormat = Annotated[Literal["png", "jpeg"], typer.Option("--format", help="With --size: format of the files.")]


@app.command()
def check(path: Images, settings: Settings = None, size: Size = None, as_json: AsJson = False) -> None:
    """Decode all images, report problems, and print a command to train.

    Reports sizes, formats, classes, duplicates and damaged files; of shards, all bytes are compared
    with their sha256. Exit code 2: images are damaged, or `train` would refuse the data, and its message is printed.
    """
    from paragan.datasets.preparation import dataset_check

    words = settings or []
    data = read_data_settings(dataset_check.guess_data_set(path, words), path, words)
    with show_progress("images read") as update:
        report = dataset_check.check_dataset(path, size, update, data, words)
    report.refusal = _refusal(report)
    if as_json:
        print(json.dumps(asdict(report) | {"command": report.command}))
    else:
        print("\n".join(to_printable(line.replace("\n", "?")) for line in format_report(report)))
    if report.damaged or report.refusal or not report.settings:
        raise typer.Exit(2)


def _refusal(report: DatasetReport) -> str:
    """Return why `train` would refuse the recipe and the settings of a report, empty if it would not."""
    from paragan.runs.run_request import RunRequest
    from paragan.runs.session import check_start

    if not report.settings:
        return ""
    try:
        config = read_recipe(report.recipe, report.settings)
        with warnings.catch_warnings(action="ignore"):  # of the trial of networks that it starts with
            check_start(RunRequest(config=config, name=report.recipe, out=Path("runs") / report.recipe))
    except ParaganError as error:
        return str(error)
    return report.damaged[0] if report.damaged and getattr(config.data.options, "damaged", "") != "skip" else ""


def format_report(report: DatasetReport) -> list[str]:
    """Return the report as lines of text."""
    lines = [f"{report.path}: {report.summary}"]
    including = ", damaged ones included" if report.damaged else ""
    lines.append(f"  splits        {report.splits['train']:,} train, {report.splits['held_out']:,} held out{including}")
    low, median, high = report.sides
    if high:
        square = f"{report.not_square:,} not square"
        lines.append(f"  shorter side  {low:,} to {high:,} px, median {median:,}; {square}")
    if report.formats:
        lines.append(f"  formats       {_counts(report.formats)}; {_counts(report.kinds)}")
        ranges = [f"{depth} {low:g} to {high:g}" for depth, (low, high) in report.ranges.items()]
        lines.append(f"  values        {', '.join(ranges)}")
    lines.append(f"  classes       {_classes(report.classes)}")
    if report.pairs:
        lines.append(f"  pairs         {report.pairs}")
    lines += [f"  warning: {line}" for line in report.warnings]
    lines.append(f"  duplicates    {len(report.duplicates):,}")
    lines += _first_lines([f"{name} equals {earlier}" for name, earlier in report.duplicates])
    lines += [f"  damaged       {len(report.damaged):,}", *_first_lines(report.damaged)]
    if report.advice:
        lines += ["", "Consider:", *(f"  - {line}" for line in report.advice)]
    if report.refusal:
        last = f"Training would stop at this: {report.refusal}"
    else:
        last = f"To train: {report.command}" if report.command else "There are no images to train on."
    return [*lines, "", last]


def _counts(numbers: dict[str, int]) -> str:
    return ", ".join(f"{number:,} {name}" for name, number in numbers.items())


def _first_lines(lines: list[str]) -> list[str]:
    first = [f"    {line}" for line in lines[:_MAX_LISTED]]
    return [*first, f"    and {len(lines) - _MAX_LISTED:,} more"] if len(lines) > _MAX_LISTED else first


def _classes(classes: dict[str, int]) -> str:
    if not classes:
        return "none (classes are sub-folders, two or more)"
    first = ", ".join(f"{name} {count:,}" for name, count in list(classes.items())[:_MAX_LISTED])
    return f"{len(classes)}: {first}{', …' if len(classes) > _MAX_LISTED else ''}"


@app.command("prepare")
def prepare_command(
    source: Unprepared,
    out: Into,
    settings: Settings = None,
    *,
    size: Resized = None,
    file_format: FileFormat = "png",
    quality: Quality = None,
    per_shard: PerShard = 1000,
    threads: Threads = None,
    as_json: AsJson = False,
) -> None:
    """Pack images into shards: tar files in WebDataset's format with an index.

    `data.name=shards data.path=OUT` trains on them. A stopped command continues with the shards
    that are missing. Equal sources and options give equal bytes. With --size, data.channels, data.crop,
    data.background and data.range say how pixels are stored.
    """
    from paragan.datasets.preparation import prepare

    words = settings or []
    options = read_data_settings("folder", source, words).options
    encoding = prepare.make_encoding(size, options, words, file_format, quality)
    with show_progress("images") as update:
        prepared = prepare.prepare_shards(source, out, encoding, per_shard, threads, options, update)
    if as_json:
        print(json.dumps(asdict(prepared.folder.description)))
    else:
        print("\n".join(map(to_printable, format_shards(prepared))))


def format_shards(prepared: PreparedShards) -> list[str]:
    """Return a description of prepared shards as lines of text."""
    folder = prepared.folder
    description = folder.description
    total = sum(shard.num_bytes for shard in description.shards)
    size = "" if description.encoding is None else f" of {description.encoding.size} px"
    words = ["train", "own", "data.name=shards", f"data.path={folder.address}", "data.size=null"]
    if description.encoding is not None and description.encoding.channels == 1:
        words.append("data.channels=1")
    return [
        *(f"warning: {line}" for line in prepared.notices),
        f"{folder.address}: {counted(len(folder), 'image')}{size}, {total / 1e6:,.1f} MB",
        f"  shards   {len(description.shards):,}, {prepared.num_written:,} of them written now",
        f"  classes  {len(description.class_names) or 'none'}",
        f"  source   {prepared.summary}",
        "",
        f"To train: {program_command()} {shlex.join(words)}",
    ]
