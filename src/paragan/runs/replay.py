"""Replay: repetition of steps of any run, compared with its record bit for bit."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from paragan.config import RunConfig, read_recipe
from paragan.config.sections import ANY
from paragan.core.errors import CheckpointError
from paragan.core.files import link_or_copy, read_json_lines
from paragan.runs.folder import RunFolder, environment, read_environment
from paragan.runs.open_run import config_path, print_line
from paragan.runs.replay_comparison import ReplayResult, compare_replay
from paragan.runs.replay_plan import ReplayPlan, follows_order, plan_replay
from paragan.runs.run_request import RunRequest
from paragan.runs.start import start_training

_VERSIONS = ("paragan", "torch", "numpy", "python", "cpu", "threads")


def replay_run(path: Path, step: int | None = None, out: Path | None = None, trust: bool = False) -> tuple[int, str]:
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
    outside = ANY if trust else ()
    config = read_recipe(str(config_file), (), outside)
    plan = plan_replay(path, config, step)
    repetition = read_recipe(str(config_file), list(plan.overrides), outside)
    folder = out or path / "replay"
    _print_plan(path, plan, repetition)
    _prepare(path, folder, plan)
    request = RunRequest(repetition, str(config_file), folder, has_commands=True, overrides=plan.overrides)
    if code := start_training(request):
        return code, ""
    found = compare_replay(path, folder, plan, follows_order(config, plan.ranks))
    return (2, _difference(path, folder, plan, found)) if found.difference else (0, _equality(plan, found))


def _print_plan(path: Path, plan: ReplayPlan, config: RunConfig) -> None:
    """Print the steps to repeat, and what may change the last bits of their numbers."""
    start = "the start" if plan.checkpoint is None else f"checkpoint {plan.checkpoint.name}"
    ranks = f" on {plan.ranks} ranks" if plan.ranks > 1 else ""
    print(f"replaying steps {plan.first + 1} to {plan.last} from {start}{ranks}", flush=True)
    recorded = read_environment(path)
    here = environment(plan.ranks)
    if config.train.threads is not None:
        here["threads"] = config.train.threads
    changed = [f"{name} {recorded[name]} (now {here[name]})" for name in _VERSIONS if _differs(recorded, here, name)]
    if changed:
        print_line(f"warning: the run used {', '.join(changed)}; numbers may differ in their last bits")
    if config.grid is not None and config.workers is not None and config.grid.executor == "auto":
        print_line("warning: grid.executor=auto: workers choose again, and numbers may differ in their last bits")


def _differs(recorded: Mapping[str, Any], here: Mapping[str, Any], name: str) -> bool:
    return name in recorded and recorded[name] != here[name]


def _prepare(path: Path, folder: Path, plan: ReplayPlan) -> None:
    """Make a folder that continues at the plan's checkpoint, with the judge of the run."""
    former = RunFolder(folder)
    if (aside := former.set_aside()) is not None:
        print(f"the former replay was moved to {aside}", flush=True)
    if (folder / "checkpoints").exists():
        raise CheckpointError(f"{folder} holds checkpoints of something else; give another --out DIR")
    sources = [path / "judge", *([] if plan.checkpoint is None else [plan.checkpoint])]
    for source in filter(Path.is_dir, sources):
        target = folder / source.relative_to(path)
        target.mkdir(parents=True)
        for file in sorted(source.iterdir()):
            link_or_copy(file, target / file.name)


def _equality(plan: ReplayPlan, found: ReplayResult) -> str:
    equal = []
    if found.losses:
        equal.append(f"losses of step {found.losses}")
    if found.tensors:
        equal.append(f"all tensors of step {found.tensors}")
    return f"replayed steps {plan.first + 1} to {plan.last}: {' and '.join(equal)} are equal bit for bit"


def _difference(path: Path, folder: Path, plan: ReplayPlan, found: ReplayResult) -> str:
    """Describe the first difference, and a difference of the players that explains it."""
    text = f"replayed steps {plan.first + 1} to {plan.last}; first difference: {found.difference}"
    recorded = _players(path, plan.first)
    here = _players(folder, plan.first)
    for side, player in recorded.items():
        for key, value in player.items():
            if (now := here.get(side, {}).get(key)) != value:
                return f"{text} ({side}: {key} was {value}, now {now})"
    return text


def _players(folder: Path, first: int) -> dict[str, Any]:
    """Return the players of the session that trained the steps after `first`."""
    lines = [line for line in read_json_lines(folder / "metrics.jsonl") if line.get("kind") == "start"]
    sessions = [line for line in lines if line["step"] <= first]
    return dict(sessions[-1].get("players", {})) if sessions else {}
