"""Lines that a run prints: at its start and at its end, with the commands to use on it."""

import json
import shlex
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from paragan.build import evaluation
from paragan.config import RunConfig, changes
from paragan.core import registry
from paragan.core.command import program_command
from paragan.core.dist import World
from paragan.core.printable import counted, join_some
from paragan.core.source import Source, describe_tensors
from paragan.core.tensor_game import LATENT
from paragan.core.types import Rows, Side, player_label
from paragan.engine.advice import as_flow
from paragan.engine.remedies import Settings
from paragan.engine.session import Session
from paragan.engine.training_loop import TrainingLoop
from paragan.features.judge import JUDGE
from paragan.runs.run_request import Runner, RunRequest
from paragan.writers.console import clock_time

_MAX_NAME = 20  # characters of the name of a class
_WRITTEN = ("report.html", "samples/", "metrics.jsonl", "checkpoints/", "best/")


def describe_run(request: RunRequest, trainer: TrainingLoop) -> dict[str, Any]:
    """Return the run's entry in the record: recipe, data, changed settings, commands. Collective."""
    config = request.config
    about = {"address": request.address} if request.address else {}
    return about | {
        "recipe": request.name,
        "data": config.data.name,
        "changed": changes(request.name, config),
        "commands": _commands(request, trainer) if request.has_commands else {},
        "hosts": num_hosts(trainer.world),
    }


def _commands(request: RunRequest, trainer: TrainingLoop) -> dict[str, str]:
    path = shlex.quote(request.where)
    code = "".join(f" {shlex.quote(argument)}" for argument in request.code_arguments)
    # recipes take precedence over folders
    run = f"./{path}" if request.where in registry.names("recipes") else path
    held_out = None if trainer.fixed_samples is None else trainer.fixed_samples.held_out
    num = 64 if held_out is None else min(64, len(held_out))
    return {
        "resume": f"{program_command()} train {run}{code}",
        "sample": f"{program_command()} sample {path} --num {num}{code}",
        "export": f"{program_command()} export {path}{code}",
        "score": f"{program_command()} eval {path}{code}",
    }


def changed_command(request: RunRequest, changes: Settings) -> str:
    """Return the command, or the arguments of a program, that starts a run anew with some other settings."""
    if not request.has_commands:
        return f"settings={json.dumps(changes)}, fresh=True"
    unchanged = [word for word in request.overrides if word.partition("=")[0] not in changes]
    words = [f"{key}={as_flow(value)}" for key, value in changes.items()]
    changed = replace(request, overrides=(*unchanged, *words), fresh=True)
    return f"{program_command()} {shlex.join(changed.arguments)}"


def _twice_kimg(trainer: TrainingLoop) -> str:
    """Return twice the length of a run; a generation of a grid may have trained far more than that."""
    images = trainer.clock.images if trainer.clock.images >= 2 * trainer.images else trainer.images
    return f"{images * 2 / 1000:g}"


def complete_line(about: Mapping[str, Any], request: RunRequest, trainer: TrainingLoop) -> str:
    """Return the line for a run that is already trained."""
    kimg = f"train.kimg={_twice_kimg(trainer)}"
    command = about["commands"]["resume"] if about["commands"] else "the same program with"
    longer = f"{command} {kimg}"
    return f"already finished at step {trainer.clock.step}: {request.where}; to train longer: {longer}"


def start_lines(
    about: Mapping[str, Any], request: RunRequest, trainer: TrainingLoop, resumed: bool, runner: Runner
) -> list[str]:
    """Return the start lines: what is trained, on which data, and where. Collective."""
    start = f"resuming at step {trainer.clock.step}" if resumed else "starting"
    run = f"{request.name} for {trainer.images / 1000:g} kimg (thousand images) in {request.where}"
    source = trainer.batches.source
    players = trainer.describe()["players"]
    batch = request.config.train.batch
    lines = [f"{start}: {run} ({request.resume_hint})", *runner.start_lines(request.config)]
    lines.append(f"data      {'; '.join(filter(None, (_data_text(source), source.reading)))}")
    if batch > len(source) > 0:
        lines.append(
            f"warning: train.batch={batch} is larger than the data set ({counted(len(source), 'sample')}): "
            "each batch repeats samples"
        )
    lines += [_player_line(name, player) for name, player in sorted(players.items(), reverse=True)]
    lines += map(_unused_labels_line, trainer.gan.missing_label_penalties.items())
    if not trainer.prior.uses_labels:
        lines.append(
            "warning: the generator ignores its labels (equal latents give equal images for every class): class scores "
            "and the class names of sample sheets are left out; use y in Generator.forward, or set self.num_classes = "
            "0 in it, or pass data.labels=false"
        )
    lines += _features_line(request.config, source, trainer.prior.reads_batches)
    if trainer.score is None:
        lines.append(_no_score_line(trainer))
    lines += _range_warning(trainer)
    if (note := trainer.scheme.start_note(trainer.world.size)) is not None:
        lines.append(note)
    if trainer.world.size > 1:
        lines.append(ranks_line(trainer, players, batch, about["hosts"]))
    if request.config.train.executor in ("compile", "graphs"):
        lines.append("executor  compiled: the first steps take a minute or two")
    return lines


def _features_line(config: RunConfig, source: Source, reads_batches: bool) -> list[str]:
    features = None if source.has_pairs else config.evaluation.features
    if features is not None and not reads_batches:
        features = evaluation.resolved(config, source).features
    if features is None or features.name in ("auto", JUDGE):  # which have a line where they are trained
        return []
    summary = registry.summary("features", features.name)
    return [f"score     features of {features.name} (evaluation.features): {summary}"]


def _player_line(name: str, player: Mapping[str, object]) -> str:
    layout = " channels-last" if player["channels_last"] else ""
    trained = f" ({player['trained']:,} train)" if "trained" in player else ""
    facts = f"{player['weights']:,} weights{trained}, {player['precision']}{layout} on {player['device']}"
    return f"{player_label(name):<8}  {facts}"


def _data_text(source: Source) -> str:
    if not source.is_image:
        samples = counted(len(source), "sample") if len(source) else "streamed samples"
        return f"{samples}: {describe_tensors(source.tensors)}"
    names = join_some([name[:_MAX_NAME] for name in source.class_names], limit=4)
    classes = f" of {counted(len(source.class_names), 'class')} ({names})" if names else ""
    size = "x".join(map(str, source.shape[1:]))
    kind = {1: "grey", 3: "colour", 4: "RGBA"}.get(source.shape[0], f"{source.shape[0]}-channel")
    deep = "16-bit " if source.tensors["image"].dtype.itemsize == 2 else ""
    images = counted(len(source), f"{deep}{kind} image") if len(source) else f"streamed {deep}{kind} images"
    return f"{images}{classes}, {size}"


def num_hosts(world: World) -> int:
    """Return the number of hosts. Collective: every rank must call this."""
    return world.gather(world.local_rank).count(0)


def ranks_line(trainer: TrainingLoop, players: Mapping[str, Mapping[str, Any]], batch: int, hosts: int) -> str:
    """Return the start line about ranks and the batch. players: the description of each player."""
    num_ranks = trainer.world.size
    start = f"ranks     {num_ranks} on {counted(hosts, 'host')}"
    if trainer.roles.has_server:
        return f"{start}: G and D on rank 0, gradients from ranks 1 to {num_ranks - 1}; batches of {batch} images"
    strategies = {name: f"{player_label(name)} {player['strategy']}" for name, player in players.items()}
    if trainer.roles.is_split:
        ranks_of = {side.value: ", ".join(map(str, ranks)) for side, ranks in trainer.roles.ranks.items()}
        placed = "; ".join(f"{strategies[name]} on {ranks}" for name, ranks in ranks_of.items())
        return f"{start}: {placed}; batches of {batch} images"
    shares = Rows(step=0, first=0, count=batch, total=batch).shares(num_ranks)
    counts = sorted({rows.count for rows in shares}, reverse=True)
    period = trainer.sync_period
    ends = f"; weights are averaged every {period} steps, and the run ends at one" if period > 1 else ""
    return f"{start}: {', '.join(strategies.values())}; {' or '.join(map(str, counts))} of {batch} images each{ends}"


def _unused_labels_line(missing: tuple[Side, tuple[str, ...]]) -> str:
    side, names = missing
    added = " or ".join(f"{{name: {name}, side: {side.value}}}" for name in names)
    return f"warning: {side.value.upper()} does not learn labels: D's auxiliary head is never trained; add {added}"


def end_line(session: Session, reason: str) -> str:
    """Return the line of why training ended, its length and its duration."""
    clock = session.trainer.clock
    kimg = clock.images / 1000
    return f"{reason}: step {clock.step}, {kimg:g} kimg, {clock_time(session.timer.seconds())}"


def _no_score_line(trainer: TrainingLoop) -> str:
    """Return why a run has no score, and for samples of named tensors what to set for one."""
    from paragan.evaluation import tensor_images  # for data of a program

    sample, low, high = _image_range(trainer)
    if not trainer.prior.reads_batches or tensor_images.is_scored(trainer.batches.source, sample):
        return "score     off (evaluation.features=null)"
    if max(-low, high) > 1:
        reason = f"{sample} is from {low:.4g} to {high:.4g}, and images are scored in [-1, 1] or as uint8"
        return f"score     off (evaluation.metrics=null: {reason})"
    fix = "no metric compares samples other than images without inputs; the report shows real and generated ones"
    if set(trainer.prior.generator_arguments or ()) - {LATENT}:
        fix = "evaluation.metrics=[l1], for example, compares held-out samples with what G makes of their inputs"
    return f"score     off (evaluation.metrics=null): {fix}"


def _range_warning(trainer: TrainingLoop) -> list[str]:
    sample, low, high = _image_range(trainer)
    if low == high or (low < 0 and max(-low, high) <= 1):
        return []
    actual = f"from {low:.4g} to {high:.4g}"
    remedy = "map it to that range"
    if low >= 0 and high <= 1:
        actual = "in [0, 1]"
        remedy = f"pass 2 * {sample} - 1"
    return [f"warning: {sample} is {actual}, and images are shown and scored in [-1, 1]; {remedy}, or pass uint8"]


def _image_range(trainer: TrainingLoop) -> tuple[str, float, float]:
    """Return the name, lowest and highest value of images from Python; 0 for other samples."""
    sample = trainer.prior.sample_name
    if not trainer.prior.reads_batches:
        return sample, 0.0, 0.0
    from paragan.evaluation import tensor_images  # for data of a program

    return sample, *(tensor_images.image_range(trainer.batches.source, sample) or (0.0, 0.0))


def result_lines(session: Session) -> str:
    """Return the files of a run that has ended, and the next commands; a program has none."""
    where = session.run_info.get("address", session.folder)
    files = [name for name in _WRITTEN if (session.folder / name).exists()]
    labels = ("next", "", "")
    commands = [f"{label:<10}{command}" for label, command in zip(labels, _next_commands(session), strict=False)]
    return "\n".join([f"where     {where}: {', '.join(files)}", *commands])


def _next_commands(session: Session) -> list[str]:
    """Return commands to use a finished run, or to mend, resume and score a stopped one."""
    commands = session.run_info["commands"]
    if not commands:
        return []
    if session.trainer.is_complete:
        longer = f"{commands['resume']} train.kimg={_twice_kimg(session.trainer)}    # twice the length"
        return [commands["sample"], commands["export"], longer]
    advised = [f"{session.advised_command}    # as advised"] if session.advised_command else []
    is_unscored = session.trainer.score is not None and not (session.folder / "score.json").exists()
    score = [f"{commands['score']}    # no score yet"] if is_unscored else []
    return [*advised, f"{commands['resume']}    # resumes", *score]
