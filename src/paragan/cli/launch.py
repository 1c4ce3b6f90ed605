"""`paragan launch`: a run as a job of a cluster, submitted with the site's program."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from paragan.cli.arguments import Code, Trust, Words, trusted_recipe
from paragan.cli.run_arguments import load_config, parse_words
from paragan.cli.train import Out
from paragan.config import RunConfig
from paragan.core.errors import ConfigError

if TYPE_CHECKING:
    from paragan.extensions.clusters import ClusterJob

_FOLDER = Path("launch")
# options that have the names of fields of a job
_JOB_FIELDS = ["nodes", "ranks_per_node", "cpus_per_rank", "gpus_per_rank", "memory_mb", "time_limit_min"]
_JOB_FIELDS += ["save_s", "retries", "python", "image"]
TargetName = Annotated[str, typer.Argument(metavar="TARGET", help="local, slurm, kubernetes, ray or mpi.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the file instead of submitting it.")]
Name = Annotated[str | None, typer.Option(metavar="NAME", help="Name of the job (default: the name of the recipe).")]
Nodes = Annotated[int, typer.Option(help="Number of hosts.")]
Ranks = Annotated[int, typer.Option("--ranks", help="Ranks on each host.")]
Cpus = Annotated[int, typer.Option("--cpus", help="CPU cores of each rank.")]
Gpus = Annotated[int, typer.Option("--gpus", help="Accelerators of each rank: 0 or 1.")]
Memory = Annotated[int | None, typer.Option(metavar="MB", help="Memory of each rank.")]
_TIME = "Time limit of each start (Slurm), or of all starts together (Kubernetes)."
TimeLimit = Annotated[int | None, typer.Option("--time-limit", metavar="MINUTES", help=_TIME)]
SaveS = Annotated[int, typer.Option(metavar="SECONDS", help="Time to save, from the signal to the end of the job.")]
Retries = Annotated[int, typer.Option(help="Restarts after a temporary failure.")]
Seeds = Annotated[str | None, typer.Option(metavar="SEEDS", help="A run for each seed, in DIR/seed-N: 0,1,2 or 0-9.")]
_PYTHON = "Python on the hosts (default: this one, or `python` of the image)."
Python = Annotated[str | None, typer.Option(metavar="FILE", help=_PYTHON)]
_ENV = "Environment variable; repeatable."
Environment = Annotated[list[str] | None, typer.Option("--env", metavar="NAME=VALUE", help=_ENV)]
Image = Annotated[str | None, typer.Option(help="Container image with paragan, for Kubernetes.")]
_VOLUME = "PersistentVolumeClaim and its path in the pods; repeatable."
Volumes = Annotated[list[str] | None, typer.Option("--volume", metavar="CLAIM:PATH", help=_VOLUME)]
_SITE = "Option of the submit command (--partition=gpu), or a Kubernetes label; repeatable."
Site = Annotated[list[str] | None, typer.Option(metavar="WORD", help=_SITE)]


def launch_command(
    context: typer.Context,
    target: TargetName,
    words: Words = None,
    *,
    dry_run: DryRun = False,
    name: Name = None,
    out: Out = None,
    nodes: Nodes = 1,
    ranks_per_node: Ranks = 1,
    cpus_per_rank: Cpus = 1,
    gpus_per_rank: Gpus = 0,
    memory_mb: Memory = None,
    time_limit_min: TimeLimit = None,
    save_s: SaveS = 120,
    retries: Retries = 3,
    seeds: Seeds = None,
    python: Python = None,
    env: Environment = None,
    image: Image = None,
    volume: Volumes = None,
    site: Site = None,
    trust: Trust = False,
    code: Code = None,
) -> None:
    """Submit a run to a cluster by a job file that you can read.

    The job saves when the cluster stops it, and resumes when it starts again.
    """
    recipe, overrides, folder = parse_words(words, context)
    config = load_config(recipe, overrides, trusted_recipe(trust, code))
    _submit(config, _job(context.params, (recipe, *overrides), out or folder), target, dry_run)


def _submit(config: RunConfig, job: ClusterJob, target: str, dry_run: bool) -> None:
    from paragan.extensions.clusters import load_target
    from paragan.extensions.clusters.cluster_runs import check_job, check_job_start, submit

    render = load_target(target).render
    check_job(config, job, target)
    if dry_run:
        print(render(job), end="")
    else:
        check_job_start(config, job, target)
        submit(job, target, _FOLDER)


def _job(options: Mapping[str, Any], words: Sequence[str], out: str | None) -> ClusterJob:
    from paragan.extensions.clusters import ClusterJob
    from paragan.runs.run_request import run_name

    title = run_name(words[0])
    trust = ["--trust"] if options["trust"] else []
    code = ["--code", str(options["code"])] if options["code"] else []
    return ClusterJob(
        name=options["name"] or re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-"),
        words=(*words, *trust, *code),
        out=out or f"runs/{title}",
        seeds=parse_seeds(options["seeds"]),
        environment=_pairs("--env NAME=VALUE", "=", options["env"]),
        volumes=_pairs("--volume CLAIM:PATH", ":", options["volume"]),
        site=tuple(options["site"] or ()),
        **{name: options[name] for name in _JOB_FIELDS},
    )


def parse_seeds(text: str | None) -> tuple[int, ...]:
    """Return the value of `--seeds`: numbers and ranges."""
    if text is None:
        return ()
    if not re.fullmatch(r"\d{1,9}(-\d{1,9})?(,\d{1,9}(-\d{1,9})?)*", text, re.ASCII):
        raise ConfigError(f"--seeds: {text!r} is not a list of seeds, such as 0,1,2 or 0-9")
    seeds: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        if int(last or first) - int(first) not in range(1000):
            raise ConfigError(f"--seeds: {part} is not 1 to 1,000 seeds in ascending order")
        seeds += range(int(first), int(last or first) + 1)
    return tuple(seeds)


def _pairs(option: str, separator: str, words: Sequence[str] | None) -> tuple[tuple[str, str], ...]:
    pairs = []
    for word in words or ():
        left, is_split, right = word.partition(separator)
        if not (left and is_split):
            raise ConfigError(f"a word has no name or no {separator!r} in it; write {option}")  # it may be a secret
        pairs.append((left, right))
    return tuple(pairs)
