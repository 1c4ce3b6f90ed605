"""`paragan score`: distances between two folders of images."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from paragan.cli.arguments import AsJson
from paragan.cli.progress import show_progress
from paragan.core.errors import ConfigError
from paragan.core.printable import counted, print_to_stderr

_GENERATED = "Generated images: a folder, archive, shards or .npz file; or statistics (.npz with mu and sigma)."
Generated = Annotated[str, typer.Argument(metavar="GENERATED", help=_GENERATED)]
Real = Annotated[str, typer.Argument(metavar="REAL", help="Real images, or statistics, to compare with.")]
_FEATURES = "Extractor: a name that `list features` prints, a .pt2 file, or {name: …} as in a recipe."
Features = Annotated[str, typer.Option(metavar="NAME|FILE", help=_FEATURES)]
_METRICS = "Metrics, separated by commas (default: fd,kid,precision,recall,density,coverage)."
Metrics = Annotated[str | None, typer.Option(metavar="NAMES", help=_METRICS)]
_SAVE = "Write the statistics of REAL, for later calls and for other programs."
Save = Annotated[Path | None, typer.Option("--save-stats", metavar="FILE", help=_SAVE)]


def score_folders(
    generated: Generated,
    real: Real,
    *,
    features: Features = "inception",
    metrics: Metrics = None,
    save_stats: Save = None,
    as_json: AsJson = False,
) -> None:
    """Compare two folders of images by features, as FID does.

    Images are passed to the extractor at their own size. Published values (fd is the FID) need the features
    `inception`, whose weights `metrics import-weights` stores.
    """
    from paragan.evaluation import folder_scores
    from paragan.evaluation.statistics_files import save_statistics
    from paragan.runs.evaluate import open_extractor

    names = _check_options(metrics, save_stats)
    extractor = open_extractor(features)
    with show_progress("images") as update:
        real_set = folder_scores.read_images(real, extractor, update, "REAL")
        if save_stats is not None:
            save_statistics(save_stats, real_set.mean_F, real_set.covariance_FF, extractor)
            print_to_stderr(f"statistics of {real}: {save_stats}")
        generated_set = folder_scores.read_images(generated, extractor, update, "GENERATED")
    for line in (*real_set.warnings(), *generated_set.warnings()):
        print_to_stderr(f"warning: {line}")
    values = folder_scores.compare(generated_set, real_set, names)
    reasons = {name: value for name, value in values.items() if isinstance(value, str)}  # of those without a value
    counts = [None if images.features is None else len(images.features) for images in (generated_set, real_set)]
    if as_json:
        about = {"features": extractor.name, "sha256": extractor.sha256, "images": counts}
        with_null = values | dict.fromkeys(reasons)
        print(json.dumps({**about, "metrics": with_null, "missing": reasons}))
    else:
        print(f"{generated} and {real}: {_count(counts[0])} and {_count(counts[1])}, features {extractor.name}")
        _print_values(values, extractor.published_names)
    if metrics is not None and reasons:
        listed = "; ".join(f"{name} {reason}" for name, reason in reasons.items())
        raise ConfigError(f"--metrics: {listed}; pass other images, or leave it out")


def _check_options(metrics: str | None, save_stats: Path | None) -> list[str]:
    """Return the names of the metrics."""
    from paragan.evaluation import folder_scores
    from paragan.evaluation.statistics_files import check_statistics_path

    names = list(folder_scores.METRICS) if metrics is None else [name.strip() for name in metrics.split(",")]
    for name in names:
        folder_scores.check_metric(name)
    if save_stats is not None:
        check_statistics_path(save_stats)
    return names


def _print_values(values: Mapping[str, float | str], published: Mapping[str, str]) -> None:
    from paragan.core import registry
    from paragan.core.metric import Direction

    directions = {Direction.LOWER: "lower is better", Direction.HIGHER: "higher is better"}
    for name, value in values.items():
        direction = registry.load_module("metrics", name).Metric.direction
        text = f"{value:.6g}  ({directions.get(direction, '')})" if isinstance(value, float) else value
        print(f"  {published.get(name, name):10}  {text}")


def _count(number: int | None) -> str:
    return "statistics" if number is None else counted(number, "image")
