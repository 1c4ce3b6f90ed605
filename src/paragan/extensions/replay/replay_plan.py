"""Plan of a replay: from which checkpoint to which recorded step, and with which settings."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from paragan import build
from paragan.checkpoint.reader import open_verified, read_checkpoint, read_counts, restoring
from paragan.checkpoint.writer import CheckpointWriter
from paragan.config import RunConfig
from paragan.core.capabilities import REPLAY, check_capabilities
from paragan.core.errors import CheckpointError, ConfigError
from paragan.core.files import read_json_lines
from paragan.core.from_memory import FROM_MEMORY
from paragan.core.printable import print_to_stderr
from paragan.core.types import Side
from paragan.engine.options import Change
from paragan.runs.environment import read_environment
from paragan.schemes.base.update_order import read_used


class RecordedSession(NamedTuple):
    """Part of a run between a start and its end: steps that were finished at its start, and its ranks."""

    start: int
    ranks: int


@dataclass(frozen=True)
class RecordedRun:
    """Content of a record and of its checkpoints.

    images: through D, by log point. checkpoints: folders by step. rollbacks: images that had been
    lost after each, by step.
    """

    sessions: Sequence[RecordedSession]
    images: Mapping[int, int]
    checkpoints: Mapping[int, Path]
    rollbacks: Mapping[int, int]

    @property
    def steps(self) -> list[int]:
        """Steps with recorded losses or a checkpoint."""
        return sorted({*self.images, *self.checkpoints} - {0})

    def end_of_session(self, start: int) -> float:
        """Return the step at which the session after the one from `start` began; infinity: none."""
        return min((session.start for session in self.sessions if session.start > start), default=math.inf)


def read_recorded(path: Path) -> RecordedRun:
    """Read the record of a run folder. Raises `ConfigError` if it is invalid."""
    sessions: list[RecordedSession] = []
    images: dict[int, int] = {}
    rollbacks: dict[int, int] = {}
    try:
        for line in read_json_lines(path / "metrics.jsonl"):
            if line.get("kind") == "start":
                sessions.append(RecordedSession(int(line["step"]), int(line["ranks"])))
            elif line.get("kind") == "step":
                images[int(line["step"])] = round(line["kimg"] * 1000)
            elif "rollback" in line:
                rollbacks[int(line["step"])] = int(line["rollback"]["lost_images"])
    except OSError as error:
        raise ConfigError(f"cannot read the record {path}/metrics.jsonl: {error.strerror}") from None
    except (KeyError, TypeError, ValueError, OverflowError):
        raise ConfigError(f"{path}/metrics.jsonl has an invalid line; pass a run folder made by `train`") from None
    folders = CheckpointWriter(folder=path / "checkpoints").paths()
    named = [(folder.name.removeprefix("step-"), folder) for folder in folders]
    checkpoints = {int(step): folder for step, folder in named if step.isdecimal()}
    return RecordedRun(sessions, images, checkpoints, rollbacks)


@dataclass(frozen=True, kw_only=True)
class ReplayPlan:
    """Steps first + 1 to `last` of a run, from a checkpoint after `first` steps, or from the start.

    checkpoint: None: from the start. overrides: settings that differ from the run's config.
    """

    first: int
    last: int
    ranks: int
    checkpoint: Path | None
    overrides: tuple[str, ...] = ()


def plan_replay(path: Path, config: RunConfig, step: int | None) -> ReplayPlan:
    """Plan the repetition of a step up to the next recorded losses or checkpoint.

    step: None: the last recorded one. Raises `ConfigError` if the step cannot be repeated.
    """
    check_capabilities(REPLAY, config.needs)
    if config.model.name == FROM_MEMORY:
        raise ConfigError(config.model.options.missing())
    scheme = build.scheme(config)
    if not scheme.is_repeatable:
        raise ConfigError(
            f"scheme.name={config.scheme.name} cannot be replayed: its players train at the same time, and the "
            "order of their updates is not recorded; pass the run of another scheme"
        )
    recorded = read_recorded(path)
    if not recorded.sessions or not recorded.steps:
        raise ConfigError(f"{path}/metrics.jsonl has no losses to compare with; pass a run that has trained")
    step = step or recorded.steps[-1]
    if step > recorded.steps[-1]:
        raise ConfigError(f"--step {step} is not recorded; pass a step of 1 to {recorded.steps[-1]}")
    start, ranks = [session for session in recorded.sessions if session.start < step][-1]
    if scheme.follows_order(ranks):
        last = _last_in_order(path, config, recorded, start, step)
        first, checkpoint = _start_of_session(path, recorded, start)
    else:
        ends = [end for end in recorded.steps if end in recorded.images or scheme.updates(Side.D, end)]
        last = next((end for end in ends if end >= step), ends[-1])
        step = min(step, last)
        first, checkpoint = _nearest_checkpoint(recorded, step)
        ranks = _ranks_of(recorded, config.history, first, last)
    if any(first < rollback <= last for rollback in recorded.rollbacks):
        raise ConfigError(
            f"steps {first + 1} to {last} end with a rollback, which is not repeated; pass another --step"
        )
    plan = ReplayPlan(first=first, last=last, ranks=ranks, checkpoint=checkpoint)
    return replace(plan, overrides=tuple(_overrides(path, config, recorded, plan)))


def _last_in_order(path: Path, config: RunConfig, recorded: RecordedRun, start: int, step: int) -> int:
    """Return the last step to repeat in a session whose order of updates is recorded."""
    k = config.d.updates_per_step
    used = {side: read_used(path, side, start) for side in Side}  # one entry per update of each rank
    num_g = min(map(len, used[Side.G]))
    num_d = min(map(len, used[Side.D]))
    end_of_order = min(recorded.end_of_session(start), start + min(num_g, num_d // k))
    recorded_steps = [end for end in recorded.steps if start < end <= end_of_order]
    first_version = _d_version(recorded, start, k)
    scheme = build.scheme(config)
    ends = [end for end in recorded_steps if scheme.can_end_at(end - start, used, k, first_version)]
    if not ends or step > ends[-1]:
        hint = f"pass a step of {start + 1} to {ends[-1]}" if ends else "pass a step of another session"
        raise ConfigError(f"--step {step} is not in the recorded order of updates; {hint}")
    return next(end for end in ends if end >= step)


def _d_version(recorded: RecordedRun, start: int, k: int) -> int:
    """Return D's updates at the start of a session; after a rollback fewer than k in each step."""
    if start not in recorded.checkpoints or not any(step <= start for step in recorded.rollbacks):
        return k * start
    values = open_verified(recorded.checkpoints[start]).values["players"]["d"]
    return read_counts(values, "version")["version"]


def _start_of_session(path: Path, recorded: RecordedRun, start: int) -> tuple[int, Path | None]:
    """Return the step from which a session began, and its checkpoint."""
    if start and start not in recorded.checkpoints:
        raise ConfigError(
            f"the session of this step began at the checkpoint of step {start}, which {path} no longer holds "
            "(every.keep); pass a --step of another session"
        )
    return start, recorded.checkpoints.get(start) if start else None


def _nearest_checkpoint(recorded: RecordedRun, step: int) -> tuple[int, Path | None]:
    """Return the newest undamaged checkpoint before a step; (0, None): the start of the run."""
    for first in sorted((before for before in recorded.checkpoints if before < step), reverse=True):
        try:
            return first, read_checkpoint(recorded.checkpoints[first]).path
        except CheckpointError as error:
            print_to_stderr(f"{error}; replaying from the one before")
    return 0, None


def _ranks_of(recorded: RecordedRun, history: Sequence[Change], first: int, last: int) -> int:
    """Return the number of ranks of these steps. Raises `ConfigError` if it or a rate changed."""
    current = [session for session in recorded.sessions if session.start <= first][-1:]
    later = [session for session in recorded.sessions if first < session.start < last]
    counts = sorted({session.ranks for session in (*current, *later)})
    changed = [change.key for change in history if first < change.step < last]
    if len(counts) > 1:
        changed.append("the number of ranks")
    if changed:
        raise ConfigError(
            f"steps {first + 1} to {last} cannot be repeated together: {changed[0]} changed between them, "
            "at a resume; pass another --step"
        )
    return counts[0]


def _overrides(path: Path, config: RunConfig, recorded: RecordedRun, plan: ReplayPlan) -> Iterator[str]:
    """Yield the settings of the repetition that differ from those of the run."""
    scheme = build.scheme(config)
    yield f"train.kimg={_images_to_train(recorded, plan, scheme.updates(Side.D, plan.last)) / 1000!r}"
    yield "writers=[jsonl, console]"
    threads = read_environment(path).get("threads")
    if config.train.threads is None and type(threads) is int:
        yield f"train.threads={threads}"
    if plan.checkpoint is not None:
        yield from (f"{key}=null" for key in config.initial_paths)
    yield from _former_rates(config.history, plan.last)
    yield f"devices={plan.ranks}"
    if scheme.follows_order(plan.ranks):
        yield f"scheme.order={path.resolve()}"
    else:
        yield from ("every.sample_kimg=0", "every.log_steps=1", "evaluation.features=null")


def _images_to_train(recorded: RecordedRun, plan: ReplayPlan, updates_d: bool) -> int:
    """Return the length of the repetition. updates_d: whether its last step updates D."""
    images = recorded.images.get(plan.last)
    path = recorded.checkpoints.get(plan.last)
    if images is None and path is not None:
        checkpoint = read_checkpoint(path)
        with restoring(checkpoint):
            images = read_counts(checkpoint.values["clock"], "images")["images"]
    lost = [lost_images for step, lost_images in recorded.rollbacks.items() if step <= plan.first]
    images = (images or 0) - (lost[-1] if lost else 0)
    # a run ends at the first step with its images: a step without D has those of the step before, and needs one more
    return images if updates_d else images + 1


def _former_rates(history: Sequence[Change], last: int) -> Iterator[str]:
    """Yield the values of settings that were changed after the last step to repeat."""
    for change in reversed(history):
        if change.step >= last:
            if ".groups" in change.key:
                raise ConfigError(
                    f"{change.key} was changed at step {change.step}, and earlier steps cannot be repeated; "
                    "pass a --step after it"
                )
            yield f"{change.key}={json.dumps(change.before)}"
