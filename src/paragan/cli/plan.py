"""`paragan plan`: what a recipe costs, before it runs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from paragan.cli.arguments import AsJson, Classes, Code, Shape, Trust, Words, parse_shape, trusted_recipe
from paragan.cli.forecast_tables import format_bytes, format_forecast, format_ms
from paragan.cli.progress import show_lines
from paragan.cli.run_arguments import load_config, parse_words
from paragan.cli.table import format_table
from paragan.core.errors import ConfigError

if TYPE_CHECKING:
    from paragan.extensions.planning.forecast_run import ForecastRequest
    from paragan.extensions.planning.plan import MeasuredTimes, OperatorTime, ParallelPlan, Plan
    from paragan.extensions.planning.plan_run import PlanRequest

_MEASURE = "Also time some steps on this machine, in about 20 s."
Measure = Annotated[bool, typer.Option("--measure", help=_MEASURE)]
_OPERATORS = "Also time torch's operators in both turns of measured steps, by torch's profiler."
Operators = Annotated[bool, typer.Option("--profile", help=_OPERATORS)]
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
_SCALING = "With --workers: the batch grows with them (weak), or is the recipe's (strong)."
ScalingName = Annotated[Literal["weak", "strong"], typer.Option("--scaling", help=_SCALING)]
_PROFILE = "With --workers: file of the profile of one worker; written if there is none."
ProfileFile = Annotated[Path | None, typer.Option("--profile-file", metavar="FILE", help=_PROFILE)]
_ASSUME = "With --workers: about the cluster, such as cores=2, speed=3, workers_per_host=8 or jitter=0.05."
_CHOOSE = "With --workers: choose the settings for the largest number; --json writes them for `train --plan`."
Choose = Annotated[bool, typer.Option("--choose", help=_CHOOSE)]
_PLOT = "With --workers: SVG or PNG file for a plot of the forecast; needs matplotlib (extra `plot`)."
PlotFile = Annotated[Path | None, typer.Option("--plot", metavar="FILE", help=_PLOT)]
Assumptions = Annotated[list[str] | None, typer.Option("--assume", metavar="KEY=VALUE", help=_ASSUME)]


def plan_command(
    context: typer.Context,
    words: Words = None,
    *,
    measure: Measure = False,
    operators: Operators = False,
    memory: Memory = None,
    shape: Shape = None,
    classes: Classes = None,
    workers: WorkerCounts = None,
    network: NetworkName = "ethernet-10g",
    scaling: ScalingName = "weak",
    profile: ProfileFile = None,
    assume: Assumptions = None,
    choose: Choose = False,
    plot: PlotFile = None,
    as_json: AsJson = False,
    trust: Trust = False,
    code: Code = None,
) -> None:
    """Predict size, operations and memory of a run, without running it.

    With --measure or --profile also its time, with --workers that on a cluster. Needs no data with --shape.
    """
    recipe, overrides, _ = parse_words(words, context)
    if workers is None and (profile is not None or assume or choose or plot is not None):
        raise typer.BadParameter("--profile-file, --assume, --choose and --plot are of a forecast; pass --workers, too")
    config = load_config(recipe, overrides, trusted_recipe(trust, code))
    from paragan.extensions.planning.plan_run import PlanRequest

    request = PlanRequest(
        config=config,
        recipe=recipe,
        shape=None if shape is None else parse_shape(shape),
        classes=classes,
        memory_gb=memory,
        is_measured=measure or operators,
        is_profiled=operators,
    )
    if workers is not None:
        request = replace(request, forecast=_goal(workers, network, scaling, profile, assume or (), choose, plot))
    _print_plan(request, as_json)


def _goal(
    workers: str,
    network: str,
    scaling: Literal["weak", "strong"],
    profile: Path | None,
    assume: Sequence[str],
    choose: bool,
    plot: Path | None,
) -> ForecastRequest:
    from paragan.extensions.planning.forecast_run import ForecastRequest

    return ForecastRequest(
        workers=_parse_counts(workers),
        network=network,
        scaling=scaling,
        profile=profile,
        assume=assume,
        is_chosen=choose,
        plot=plot,
    )


def _print_plan(request: PlanRequest, as_json: bool) -> None:
    from paragan.extensions.planning.plan_run import plan_run

    with show_lines() as say:
        plan = plan_run(request, say)
    print(json.dumps(plan.to_dict(), indent=1) if as_json else format_plan(plan))


def format_plan(plan: Plan) -> str:
    """Return the plan as a table of one screen."""
    model = plan.model
    memory = plan.memory
    rows = _model_rows(plan)
    peak = f"{format_bytes(memory.peak_bytes)} at the peak of a step"
    rows.append(("memory", peak, memory.device + ", +- 30 %" * (memory.device == "cpu")))
    rows += [(f"  {name}", format_bytes(size), _TERMS.get(name, "")) for name, size in memory.terms.items()]
    turns = _turns(model.players).items()
    saved = ", ".join(f"{turn} {format_bytes(model.players[name].saved_by_turn)}" for name, turn in turns)
    rows.append(("  saved for backward", saved, ""))
    if memory.limit_bytes is not None:
        limit = f"in {format_bytes(memory.limit_bytes)}"
        rows.append(("  largest batch", f"{memory.largest_batch:,}", limit))
    data = plan.data
    kind = "images" if len(data.shape) == 3 else "samples"
    images = "not opened" if data.num_images is None else f"{data.num_images:,} {kind}"
    classes = f"{data.num_classes} classes" if data.num_classes else "no labels"
    rows.append(("data", data.name, f"{images}, {'x'.join(map(str, data.shape))}, {classes}"))
    batch = f"{format_bytes(data.batch_bytes)} per batch"
    rows.append(("  length", f"{data.kimg:,g} kimg", f"{data.steps:,} steps, {batch}"))
    rows += _time_rows(plan.measured)
    notes = "".join(f"\nnote: {note}" for note in plan.notes)
    parts = [format_table(rows) + notes]
    parts += [format_operators(side, operators) for side, operators in plan.operators.items()]
    if plan.forecast is not None:
        parts.append(format_forecast(plan.forecast))
    if plan.parallel is not None:
        parts.append(format_decisions(plan.parallel))
    return "\n\n".join(parts)


def format_operators(side: str, operators: Sequence[OperatorTime]) -> str:
    """Return the operators of a turn with most time as a table."""
    total_s = sum(one.seconds for one in operators)
    rows = [(f"{side.upper()} turn", "calls", "time", "")]
    for one in operators[:_OPERATOR_ROWS]:
        rows.append((f"  {one.name}", f"{one.calls:,.3g}", format_ms(one.seconds), f"{one.seconds / total_s:.1%}"))
    rest_s = sum(one.seconds for one in operators[_OPERATOR_ROWS:])
    rest = f"  {max(0, len(operators) - _OPERATOR_ROWS)} more"
    return format_table([*rows, (rest, "", format_ms(rest_s), f"{rest_s / total_s:.1%}" if total_s else "")])


def format_decisions(plan: ParallelPlan) -> str:
    """Return one line for each decision of a plan, and for each prediction."""
    speed = f"{plan.images_per_s:,.4g} images/s predicted"
    goal = f"{plan.hours:,.3g} hours to {plan.kimg:g} kimg"
    lines = [f"plan      {plan.chosen} on {plan.workers} workers: {speed}, {goal}"]
    for one in plan.decisions:
        value = one.value if isinstance(one.value, str) else json.dumps(one.value)
        lines.append(f"  {one.key or 'unchanged'}: {value} ({one.reason})")
    for prediction in plan.predictions:
        gain = f"{prediction.gain:+.0%} images/s"
        lines.append(f"  predicted {prediction.name}: {1000 * prediction.step_s:,.3g} ms ({gain})")
    return "\n".join(lines)


def _parse_counts(text: str) -> tuple[int, ...]:
    """Return the numbers of `--workers`."""
    words = text.split(",")
    if not all(word.strip().isdecimal() for word in words):
        raise ConfigError(f"--workers: {text!r} is not a list of numbers such as 1,8,64")
    return tuple(sorted({int(word) for word in words}))


_TERMS = {
    "optimizer": "state of all optimisers",
    "ema": "averaged weights",
    "activations": "with the batch and intermediate results",
    "workspace": "inside of kernels and of the allocator, estimated",
}


_NETWORKS = {"g": "generator", "d": "discriminator"}


def _turns(names: Iterable[str]) -> dict[str, str]:
    """Return the names of players in the order of their turns, D's first, with the names of these turns."""
    return {name: f"{name.upper() if name in _NETWORKS else name} turn" for name in dict.fromkeys(("d", "g", *names))}


def _model_rows(plan: Plan) -> list[tuple[str, str, str]]:
    """Return rows of the networks, and of the turns of each player."""
    model = plan.model
    rows = [("model", model.name, "")]
    for name, player in model.players.items():
        gmacs = player.forward_gmacs
        note = "called by its terms" if gmacs is None else f"forward {gmacs:.3g} GMACs per sample"
        rows.append((f"  {_NETWORKS.get(name, name)}", f"{player.parameters:,} parameters", note))
    for name, turn in _turns(model.players).items():
        player = model.players[name]
        updates = f"{player.updates} per step" if player.updates > 1 else "one per step"
        rows.append((f"  {turn}", f"{player.turn_gmacs:,.4g} GMACs", f"batch {plan.data.batch:,}, {updates}"))
    return rows


def _time_rows(measured: MeasuredTimes | None) -> list[tuple[str, str, str]]:
    if measured is None:
        return [("time", "not measured", "pass --measure")]
    load = "not measured" if measured.load_s is None else format_ms(measured.load_s)
    turns = [f"{turn} {format_ms(measured.turn_s[name])}" for name, turn in _turns(measured.turn_s).items()]
    turns.insert(2, f"read a batch {load}")
    return [
        ("time", f"{measured.images_per_s:,.4g} images/s", f"measured: {measured.num_steps} steps of {measured.batch}"),
        ("  step", format_ms(measured.step_s), ", ".join(turns)),
        ("  run", f"{measured.hours:,.3g} hours for {measured.kimg:,g} kimg", ""),
    ]
