"""Replay: repetition of steps of any run, compared with its record bit for bit."""

from collections.abc import Container, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from paragan import build
from paragan.checkpoint.reader import Checkpoint, read_checkpoint
from paragan.config import RunConfig, read_recipe
from paragan.config.sections import outside_of_run
from paragan.core.errors import CheckpointError, ConfigError
from paragan.core.files import check_no_link, create_subfolder, link_or_copy, read_json_lines
from paragan.core.outside_code import CodeFolder
from paragan.core.printable import print_to_stderr
from paragan.core.settings_tree import flatten
from paragan.extensions.replay.replay_plan import ReplayPlan, plan_replay, read_recorded
from paragan.runs.environment import environment, read_environment
from paragan.runs.folder import RunFolder
from paragan.runs.open_run import config_path
from paragan.runs.run_request import RunRequest
from paragan.runs.start import start_training

# numbers that depend on the speed of the machine, not on the weights
_NOT_COMPARED = ("seconds", "images_per_s", "eta_s", "data_wait", "wait_ms", "lag", "age")
_SAME_KEYS = ("seed", "data", "model", "loss", "writers")  # of the configs of all replays of a run
_VERSIONS = ("paragan", "torch", "numpy", "python", "cpu", "threads")


@dataclass
class ReplayResult:
    """How far a replay equals the run, and the first difference in words; empty: none.

    losses: newest step with equal numbers, tensors: newest with equal checkpoints; 0: none.
    """

    losses: int = 0
    tensors: int = 0
    difference: str = ""


def compare_replay(original: Path, repetition: Path, plan: ReplayPlan, in_order: bool) -> ReplayResult:
    """Compare numbers and checkpoints of the repeated steps up to the first difference.

    in_order: the run has a recorded order of updates; its learning rates are not compared, as it read them at any time.
    """
    result = ReplayResult()
    repeated = _numbers(repetition, plan, in_order)
    for step, recorded in _numbers(original, plan, in_order).items():
        replayed = repeated.get(step, {})
        common = [name for name in recorded if name in replayed]
        different = [name for name in common if recorded[name] != replayed[name]]
        if different:
            name = different[0]
            result.difference = f"step {step}: {name} is {replayed[name]!r}, recorded {recorded[name]!r}"
            return result
        if common:
            result.losses = step
    _compare_checkpoints(original, repetition, plan, result)
    if not result.difference and plan.last not in (result.losses, result.tensors):
        result.difference = f"step {plan.last}: the replay has no losses and no checkpoint to compare"
    return result


def _numbers(folder: Path, plan: ReplayPlan, in_order: bool) -> dict[int, dict[str, Any]]:
    """Return the numbers of each repeated step that are compared, by key."""
    numbers: dict[int, dict[str, Any]] = {}
    for line in read_json_lines(folder / "metrics.jsonl"):
        step = line.get("step")
        if line.get("kind") == "step" and isinstance(step, int) and plan.first < step <= plan.last:
            numbers[step] = {
                key: "nan" if value != value else value  # a NaN differs from itself: compare as text
                for key, value in flatten(line).items()
                if _is_compared(key, in_order)
            }
    return numbers


def _is_compared(key: str, in_order: bool) -> bool:
    name = key.rpartition("/")[2]
    return name not in _NOT_COMPARED and not (in_order and name.startswith("lr"))


def _compare_checkpoints(original: Path, repetition: Path, plan: ReplayPlan, result: ReplayResult) -> None:
    """Compare all checkpoints of repeated steps that both folders have."""
    for step, path in read_recorded(original).checkpoints.items():
        repeated = repetition / "checkpoints" / path.name
        if not plan.first < step <= plan.last or not repeated.is_dir():
            continue
        try:
            recorded = read_checkpoint(path)
        except CheckpointError as error:
            print_to_stderr(f"{error}; it is not compared")
            continue
        if (name := _first_difference(recorded, read_checkpoint(repeated))) is not None:
            result.difference = f"step {recorded.step}: {name} differs from the checkpoint"
            return
        result.tensors = recorded.step


def _first_difference(recorded: Checkpoint, replayed: Checkpoint) -> str | None:
    """Return the name of the first tensor that differs; None if all are equal."""
    for group, tensors in recorded.groups.items():
        others: Mapping[str, Tensor] = replayed.groups.get(group, {})
        for name, value in tensors.items():
            if name not in others or not _is_equal(value, others[name]):
                return f"{group}: {name}"
    return None


def _is_equal(a: Tensor, b: Tensor) -> bool:
    """Compare bits, not numbers: a NaN equals itself, and 0.0 is not -0.0."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    return torch.equal(a.reshape(-1).view(torch.uint8), b.reshape(-1).view(torch.uint8))


def replay_run(
    path: Path, step: int | None = None, out: Path | None = None, trust: bool | CodeFolder = False
) -> tuple[int, str]:
    """Repeat a step of the run at `path` in `out` and compare it with the record.

    Begins at the nearest checkpoint before the step, and ends at the next recorded losses or
    checkpoint. Schemes with a recorded order of updates begin where the session of the step began.
    Returns the exit code (0: equal, 2: different) and one line of text, which is empty if training
    failed.

    step: from 1; None: the last recorded one. out: RUN/replay unless given. Raises
    `CheckpointError` for a folder that is not a run, `ConfigError` for a step that cannot be
    repeated.
    """
    config_file = config_path(path)
    outside = outside_of_run(trust)
    config = read_recipe(str(config_file), (), outside)
    plan = plan_replay(path, config, step)
    repetition = read_recipe(str(config_file), list(plan.overrides), outside)
    folder = out or path / "replay"
    if out is None:
        check_no_link(folder)
    _check_folder(path, folder, repetition, outside)
    _print_plan(path, plan, repetition)
    _prepare(path, folder, plan)
    request = RunRequest(
        config=repetition, name=str(config_file), out=folder, has_commands=True, overrides=plan.overrides
    )
    request = replace(request, code=trust if isinstance(trust, CodeFolder) else None)
    if code := start_training(request):
        return code, ""
    result = compare_replay(path, folder, plan, build.scheme(config).follows_order(plan.ranks))
    return (2, _difference(path, folder, plan, result)) if result.difference else (0, _equality(plan, result))


def _print_plan(path: Path, plan: ReplayPlan, config: RunConfig) -> None:
    """Print the steps to repeat, and what may change the last bits of their numbers."""
    start = "the start" if plan.checkpoint is None else f"checkpoint {plan.checkpoint.name}"
    ranks = f" on {plan.ranks} ranks" if plan.ranks > 1 else ""
    print(f"replaying steps {plan.first + 1} to {plan.last} from {start}{ranks}", flush=True)
    recorded = read_environment(path)
    current = environment(plan.ranks)
    if config.train.threads is not None:
        current["threads"] = config.train.threads
    versions = [name for name in _VERSIONS if name in recorded and recorded[name] != current[name]]
    changed = [f"{name} {recorded[name]} (now {current[name]})" for name in versions]
    if changed:
        print_to_stderr(f"warning: the run used {', '.join(changed)}; numbers may differ in their last bits")


def _check_folder(path: Path, folder: Path, repetition: RunConfig, outside: Container[str]) -> None:
    """Raise `CheckpointError` if a folder has a run that is no repetition of this one: it would be set aside."""
    if not RunFolder(folder).config.exists():
        return
    try:
        former: RunConfig | None = read_recipe(str(RunFolder(folder).config), (), outside)
    except ConfigError:
        former = None
    is_original = folder.resolve() == path.resolve()
    if is_original or former is None or any(getattr(former, key) != getattr(repetition, key) for key in _SAME_KEYS):
        raise CheckpointError(f"{folder} holds another run; give another --out DIR")


def _prepare(path: Path, folder: Path, plan: ReplayPlan) -> None:
    """Make a folder that continues at the plan's checkpoint, with the judge of the run."""
    if (aside := RunFolder(folder).set_aside()) is not None:
        print(f"the former replay was moved to {aside}", flush=True)
    if (folder / "checkpoints").exists():
        raise CheckpointError(f"{folder} holds checkpoints of something else; give another --out DIR")
    if (path / "judge").is_dir():
        _copy_files(path / "judge", create_subfolder(folder, "judge"))
    if plan.checkpoint is not None:
        checkpoints = create_subfolder(folder, "checkpoints")
        _copy_files(plan.checkpoint, create_subfolder(checkpoints, plan.checkpoint.name))


def _copy_files(source: Path, target: Path) -> None:
    for file in sorted(source.iterdir()):
        link_or_copy(file, target / file.name)


def _equality(plan: ReplayPlan, result: ReplayResult) -> str:
    """Describe what is equal."""
    equal = []
    if result.losses:
        equal.append(f"losses of step {result.losses}")
    if result.tensors:
        equal.append(f"all tensors of step {result.tensors}")
    return f"replayed steps {plan.first + 1} to {plan.last}: {' and '.join(equal)} are equal bit for bit"


def _difference(path: Path, folder: Path, plan: ReplayPlan, result: ReplayResult) -> str:
    """Describe the first difference, and a difference of the players that explains it."""
    text = f"replayed steps {plan.first + 1} to {plan.last}; first difference: {result.difference}"
    recorded = _players(path, plan.first)
    current = _players(folder, plan.first)
    for side, player in recorded.items():
        for key, value in player.items():
            current_value = current.get(side, {}).get(key)
            if current_value != value:
                return f"{text} ({side}: {key} was {value}, now {current_value})"
    return text


def _players(folder: Path, first: int) -> dict[str, Any]:
    """Return the players of the session that trained the steps after `first`."""
    lines = [line for line in read_json_lines(folder / "metrics.jsonl") if line.get("kind") == "start"]
    sessions = [line for line in lines if line["step"] <= first]
    return dict(sessions[-1].get("players", {})) if sessions else {}
