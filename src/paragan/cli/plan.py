"""`paragan plan`: what a recipe costs, before it runs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from paragan.cli.arguments import AsJson, Classes, Code, Shape, Trust, Words, parse_shape, trusted_recipe
from paragan.cli.progress import show_lines
from paragan.cli.run_arguments import load_config, parse_words
from paragan.cli.table import format_table
from paragan.core.errors import ConfigError
from paragan.core.printable import counted

if TYPE_CHECKING:
    from paragan.extensions.planning import plan as parts
    from paragan.extensions.planning.forecast import ForecastRequest
    from paragan.extensions.planning.plan_run import PlanRequest

Measure = Annotated[bool, typer.Option("--measure", help="Also time some steps on this machine, in about 20 s.")]
_PROFILE = "Also time torch's operators in the turns of D and G, with torch's profiler."
Profile = Annotated[bool, typer.Option("--profile", help=_PROFILE)]
_MEMORY = "Compute the largest batch for this memory, in GB (1e9 bytes)."
Memory = Annotated[float | None, typer.Option("--memory", metavar="GB", min=0.001, help=_MEMORY)]
_OPERATOR_ROWS = 12  # with most time; the document has all
_WORKERS = "Simulate the run on these numbers of workers, such as 1,8,64,1024, from a profile of one."
WorkerCounts = Annotated[str | None, typer.Option("--workers", metavar="N,N,...", help=_WORKERS)]
_NETWORK = (
    "With --workers: loopback, ethernet-1g, ethernet-10g, ethernet-25g, v100-infiniband or ici-v3, "
    "or LATENCY_US,GBIT of another."
)
NetworkName = Annotated[str, typer.Option("--network", metavar="NAME", help=_NETWORK)]
_SCALING = "With --workers: the batch grows with the workers (weak), or stays the recipe's (strong)."
ScalingName = Annotated[Literal["weak", "strong"], typer.Option("--scaling", help=_SCALING)]
_PROFILE_FILE = "With --workers: file with the profile of one worker; measured and written if it does not exist."
ProfileFile = Annotated[Path | None, typer.Option("--profile-file", metavar="FILE", help=_PROFILE_FILE)]
_ASSUME = "With --workers: properties of the cluster, such as cores=2, speed=3, workers_per_host=8 or jitter=0.05."
_CHOOSE = "With --workers: choose the settings for the largest number; --json writes them for `train --plan`."
Choose = Annotated[bool, typer.Option("--choose", help=_CHOOSE)]
_PLOT = "With --workers: SVG or PNG file for a plot of the forecast; needs matplotlib (extra `plot`)."
PlotFile = Annotated[Path | None, typer.Option("--plot", metavar="FILE", help=_PLOT)]
Assumptions = Annotated[list[str] | None, typer.Option("--assume", metavar="KEY=VALUE", help=_ASSUME)]
_PLAYERS = {"g": "generator", "d": "discriminator"}
_MEMORY_NOTES = {
    "optimizer": "state of all optimisers",
    "ema": "averaged weights",
    "activations": "with the batch and intermediate results",
    "workspace": "inside kernels and the allocator, estimated",
}
_GBIT = 1e9 / 8
_Row = tuple[str, str, str]
_COLUMNS = (20, 31)  # characters of the first two columns of a plan
_LARGER_BATCH = (
    "note: hours count images, not quality; a larger batch usually needs more images for the same\n"
    "quality (--scaling strong keeps the recipe's batch)"
)


def plan_command(
    context: typer.Context,
    words: Words = None,
    *,
    measure: Measure = False,
    profile: Profile = False,
    memory: Memory = None,
    shape: Shape = None,
    classes: Classes = None,
    workers: WorkerCounts = None,
    network: NetworkName = "ethernet-10g",
    scaling: ScalingName = "weak",
    profile_file: ProfileFile = None,
    assume: Assumptions = None,
    choose: Choose = False,
    plot: PlotFile = None,
    as_json: AsJson = False,
    trust: Trust = False,
    code: Code = None,
) -> None:
    """Predict size, operations and memory of a run, without running it.

    --measure and --profile add its time, --workers the time on a cluster. No data is needed with --shape.
    """
    recipe, overrides, _ = parse_words(words, context)
    if workers is None and any((profile_file, assume, choose, plot)):
        raise typer.BadParameter("--profile-file, --assume, --choose and --plot belong to a forecast; add --workers N")
    config = load_config(recipe, overrides, trusted_recipe(trust, code))
    from paragan.extensions.planning.plan_run import PlanRequest

    request = PlanRequest(
        config=config,
        recipe=recipe,
        shape=None if shape is None else parse_shape(shape),
        classes=classes,
        memory_gb=memory,
        is_measured=measure or profile,
        is_profiled=profile,
        forecast=None if workers is None else _forecast_request(context.params),
    )
    _print_plan(request, as_json)


def _print_plan(request: PlanRequest, as_json: bool) -> None:
    """Print each part of a plan once it is known, or the whole document."""
    from paragan.extensions.planning.plan_run import plan_run

    out = None if sys.stdout.isatty() else sys.stdout  # None: above the status line, which shares the terminal

    def show(part: object) -> None:
        if not as_json:
            print(format_part(part), file=out, flush=True)

    with show_lines() as log:
        plan = plan_run(request, log, show)
    if as_json:
        print(json.dumps(plan.to_dict(), indent=1))


def _forecast_request(options: Mapping[str, Any]) -> ForecastRequest:
    from paragan.extensions.planning.forecast import ForecastRequest

    return ForecastRequest(
        workers=_parse_counts(options["workers"]),
        network=options["network"],
        scaling=options["scaling"],
        profile=options["profile_file"],
        assume=options["assume"] or (),
        is_chosen=options["choose"],
        plot=options["plot"],
    )


def format_part(part: object) -> str:
    """Return a part of a plan as `plan_run` shows it: rows with the same columns, a note, or a table of its own."""
    from paragan.extensions.planning import plan as parts

    match part:
        case parts.DataPlan():
            return _format_rows(_data_rows(part))
        case parts.ModelPlan():
            return _format_rows(_model_rows(part))
        case parts.MemoryPlan(largest_batch=None):
            return _format_rows(_memory_rows(part))
        case parts.MemoryPlan(largest_batch=largest, limit_bytes=int(limit)):
            return _format_rows([("  largest batch", f"{largest:,}", f"in {format_bytes(limit)}")])
        case parts.DevicePlan():
            return _format_rows(_device_rows(part))
        case parts.MeasuredTimes() | None:
            return _format_rows(_time_rows(part))
        case parts.ForecastPlan():
            return f"\n{format_forecast(part)}"
        case parts.ParallelPlan():
            return f"\n{format_decisions(part)}"
        case dict():
            return "\n".join(f"\n{format_operators(side, operators)}" for side, operators in part.items())
    return f"note: {part}"


def _format_rows(rows: Sequence[_Row]) -> str:
    return format_table([(name.ljust(_COLUMNS[0]), value.ljust(_COLUMNS[1]), note) for name, value, note in rows])


def _data_rows(data: parts.DataPlan) -> list[_Row]:
    kind = "images" if len(data.shape) == 3 else "samples"
    images = "not read" if data.num_images is None else f"{data.num_images:,} {kind}"
    classes = counted(data.num_classes, "class") if data.num_classes else "no labels"
    steps = f"{counted(data.steps, 'step')} of {data.batch:,} ({format_bytes(data.batch_bytes)})"
    return [
        ("data", data.name, f"{images}, {'x'.join(map(str, data.shape))}, {classes}"),
        ("  length", f"{data.kimg:,g} kimg", steps),
    ]


def _memory_rows(memory: parts.MemoryPlan) -> list[_Row]:
    peak = f"{format_bytes(memory.peak_bytes)} at the peak of a step"
    terms = [(f"  {name}", format_bytes(size), _MEMORY_NOTES.get(name, "")) for name, size in memory.terms.items()]
    return [("memory", peak, "cpu, +- 30 %" if memory.device == "cpu" else memory.device), *terms]


def _device_rows(plan: parts.DevicePlan) -> list[_Row]:
    samples = f"{counted(plan.rows, 'sample')} each, strategy ddp"
    largest = "" if plan.largest_batch is None else f"; largest batch of all {plan.largest_batch:,}"
    return [(f"  each of {plan.devices} devices", format_bytes(plan.peak_bytes), f"{samples}{largest}")]


def format_operators(side: str, operators: Sequence[parts.OperatorTime]) -> str:
    """Return the operators of a turn with most time as a table."""
    total_s = sum(operator.seconds for operator in operators)
    rows = [(f"{side.upper()} turn", "calls", "time", "")]
    for operator in operators[:_OPERATOR_ROWS]:
        share = f"{operator.seconds / total_s:.1%}"
        rows.append((f"  {operator.name}", f"{operator.calls:,.3g}", format_ms(operator.seconds), share))
    rest_s = sum(operator.seconds for operator in operators[_OPERATOR_ROWS:])
    rest = f"  {max(0, len(operators) - _OPERATOR_ROWS)} more"
    return format_table([*rows, (rest, "", format_ms(rest_s), f"{rest_s / total_s:.1%}" if total_s else "")])


def format_decisions(plan: parts.ParallelPlan) -> str:
    """Return one line for each decision of a plan, and for each prediction."""
    speed = f"{plan.images_per_s:,.4g} images/s predicted"
    goal = f"{plan.hours:,.3g} hours to {plan.kimg:g} kimg"
    lines = [f"plan      {plan.chosen} on {counted(plan.workers, 'worker')}: {speed}, {goal}"]
    for decision in plan.decisions:
        value = decision.value if isinstance(decision.value, str) else json.dumps(decision.value)
        lines.append(f"  {decision.key or 'unchanged'}: {value} ({decision.reason})")
    for prediction in plan.predictions:
        gain = f"{prediction.gain:+.0%} images/s"
        lines.append(f"  predicted {prediction.name}: {1000 * prediction.step_s:,.3g} ms ({gain})")
    return "\n".join(lines)


def _parse_counts(text: str) -> tuple[int, ...]:
    words = text.split(",")
    if not all(word.strip().isdecimal() for word in words):
        raise ConfigError(f"--workers: {text!r} is not a list of numbers such as 1,8,64")
    return tuple(sorted({int(word) for word in words}))


def _turns(names: Iterable[str]) -> dict[str, str]:
    """Return the name of each player's turn by that of the player, in the order of the turns: D's first."""
    return {name: f"{name.upper() if name in _PLAYERS else name} turn" for name in dict.fromkeys(("d", "g", *names))}


def _model_rows(model: parts.ModelPlan) -> list[_Row]:
    rows = [("model", model.name, "")]
    for name, player in model.players.items():
        gmacs = player.forward_gmacs
        note = "called by its loss terms" if gmacs is None else f"forward {gmacs:.3g} GMACs per sample"
        rows.append((f"  {_PLAYERS.get(name, name)}", f"{player.parameters:,} parameters", note))
    for name, turn in _turns(model.players).items():
        player = model.players[name]
        updates = f"{player.updates} per step" if player.updates > 1 else "one per step"
        saved = f"saves {format_bytes(player.saved_by_turn)} for its backward pass"
        rows.append((f"  {turn}", f"{player.turn_gmacs:,.4g} GMACs", f"{updates}, {saved}"))
    return rows


def _time_rows(measured: parts.MeasuredTimes | None) -> list[_Row]:
    if measured is None:
        return [("time", "not measured", "pass --measure")]
    load = "not measured" if measured.load_s is None else format_ms(measured.load_s)
    turns = [f"{turn} {format_ms(measured.turn_s[name])}" for name, turn in _turns(measured.turn_s).items()]
    turns.insert(2, f"read a batch {load}")  # after D's and G's turn, before those of extra players
    return [
        (
            "time",
            f"{measured.images_per_s:,.4g} images/s",
            f"measured: {counted(measured.num_steps, 'step')} of {measured.batch}",
        ),
        ("  step", format_ms(measured.step_s), ", ".join(turns)),
        ("  run", f"{measured.hours:,.3g} hours for {measured.kimg:,g} kimg", ""),
    ]


def format_forecast(plan: parts.ForecastPlan) -> str:
    """Return two tables: the run on each number of workers, and what its time is lost to.

    For a batch that grows with the workers, a note says that images are not quality.
    """
    link = plan.cluster.network.between
    head = (
        f"forecast: {plan.goal.kimg:g} kimg, {plan.goal.scaling} scaling, from a profile of {plan.profile.machine}\n"
        f"network: {link.bytes_per_s * 8 / 1e9:g} Gbit/s, {link.latency_s * 1e6:g} us ({plan.cluster.network.source})"
    )
    hours = f"hours to {plan.goal.kimg:g} kimg"
    runs = [("workers", "batch", "step", "images/s", "efficiency", "sent per step", hours)]
    losses = [("workers", *plan.rows[0].losses)]
    for row in plan.rows:
        sent = format_bytes(round(sum(row.link_bytes.values())))
        times = (format_ms(row.step_s), f"{row.images_per_s:,.4g}", f"{row.efficiency:.1%}", sent)
        runs.append((f"{row.workers:,}", f"{row.batch:,}", *times, f"{row.hours:,.3g}"))
        losses.append((f"{row.workers:,}", *(f"{share:.1f} %" for share in row.losses.values())))
    grows = plan.goal.scaling == "weak" and plan.rows[-1].workers > 1
    note = f"\n{_LARGER_BATCH}" if grows else ""
    return f"{head}\n{_link_line(plan)}\n{format_table(runs)}{note}\n\n{format_table(losses)}"


def _link_line(plan: parts.ForecastPlan) -> str:
    """Return what the largest number of workers needs of its links, and what they have."""
    row = plan.rows[-1]
    network = plan.cluster.network
    has = f"{network.between.bytes_per_s / _GBIT:.3g} (within a host {network.inside.bytes_per_s / _GBIT:.3g})"
    need = f"link: {row.workers:,} workers need {row.needed_bytes_per_s / _GBIT:.3g} Gbit/s each while they compute"
    return f"{need}; the network has {has}"


def format_ms(seconds: float) -> str:
    """Return seconds as milliseconds of three digits."""
    return f"{1000 * seconds:,.3g} ms"


def format_bytes(size: int) -> str:
    """Return a number of bytes in kB, MB or GB."""
    if size < 1e6:
        return f"{size / 1e3:,.1f} kB"
    return f"{size / 1e9:,.2f} GB" if size >= 1e9 else f"{size / 1e6:,.1f} MB"
