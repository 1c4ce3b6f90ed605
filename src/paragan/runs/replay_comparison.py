"""Comparison of a replay with the record and the checkpoints of its run, bit for bit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from paragan.checkpoint.reader import Checkpoint, read_checkpoint
from paragan.checkpoint.writer import CheckpointWriter
from paragan.config.run_config import flatten
from paragan.core.errors import CheckpointError
from paragan.core.files import read_json_lines
from paragan.runs.open_run import print_line
from paragan.runs.replay_plan import ReplayPlan

# depend on the speed of the machine, not on the weights
_TIMES = ("images_per_s", "eta_s", "data_wait", "wait_ms", "lag", "age")
_NOT_COMPARED = ("kind", "seconds", "profile", "workers")


@dataclass
class ReplayResult:
    """What was compared, and the first difference in words.

    losses: newest step with equal numbers, tensors: newest with equal checkpoints; 0: none.
    """

    losses: int = 0
    tensors: int = 0
    difference: str = ""


def compare_replay(original: Path, repetition: Path, plan: ReplayPlan, in_order: bool) -> ReplayResult:
    """Compare numbers and checkpoints of the repeated steps up to the first difference.

    in_order: the run has a recorded order of updates: learning rates are read at any moment.
    """
    found = ReplayResult()
    theirs = _numbers(original, plan, in_order)
    ours = _numbers(repetition, plan, in_order)
    for (step, kind), recorded in theirs.items():
        replayed = ours.get((step, kind), {})
        common = [name for name in recorded if name in replayed]
        name = next((name for name in common if recorded[name] != replayed[name]), None)
        if name is not None:
            found.difference = f"step {step}: {name} is {replayed[name]!r}, recorded {recorded[name]!r}"
            return found
        if common:
            found.losses = step
    _compare_checkpoints(original, repetition, plan, found)
    if not found.difference and plan.last not in (found.losses, found.tensors):
        found.difference = f"step {plan.last}: the replay has no losses and no checkpoint to compare"
    return found


def _numbers(folder: Path, plan: ReplayPlan, in_order: bool) -> dict[tuple[int, str], dict[str, Any]]:
    """Return the numbers of each repeated step and generation, by (step, kind)."""
    found: dict[tuple[int, str], dict[str, Any]] = {}
    for line in read_json_lines(folder / "metrics.jsonl"):
        step = line.get("step")
        if line.get("kind") in ("step", "generation") and isinstance(step, int) and plan.first < step <= plan.last:
            # a NaN differs from itself: compare as text
            values = {k: v if v == v else "nan" for k, v in _compared(line, in_order)}
            found[step, line["kind"]] = values
    return found


def _compared(line: Mapping[str, Any], in_order: bool) -> Iterator[tuple[str, Any]]:
    for key, value in flatten({k: v for k, v in line.items() if k not in _NOT_COMPARED}).items():
        name = key.rpartition("/")[2]
        if name not in _TIMES and not (in_order and name.startswith("lr")):
            yield key, value


def _compare_checkpoints(original: Path, repetition: Path, plan: ReplayPlan, found: ReplayResult) -> None:
    """Compare all checkpoints of repeated steps that both folders have."""
    theirs = CheckpointWriter(original / "checkpoints")
    ours = CheckpointWriter(repetition / "checkpoints")
    for path in theirs.paths():
        repeated = ours.folder / path.name
        if not (ours.path_of(plan.first).name < path.name <= ours.path_of(plan.last).name and repeated.is_dir()):
            continue
        try:
            recorded = read_checkpoint(path)
        except CheckpointError as error:
            print_line(f"{error}; it is not compared")
            continue
        name = _first_difference(recorded, read_checkpoint(repeated))
        if name is not None:
            found.difference = f"step {recorded.step}: {name} differs from the checkpoint"
            return
        found.tensors = recorded.step


def _first_difference(recorded: Checkpoint, replayed: Checkpoint) -> str | None:
    """Return the name of the first tensor that differs."""
    for group, tensors in recorded.groups.items():
        others: Mapping[str, Tensor] = replayed.groups.get(group, {})
        for name, value in tensors.items():
            if name not in others or not _is_equal(value, others[name]):
                return f"{group}: {name}"
    return None


def _is_equal(a: Tensor, b: Tensor) -> bool:
    """Return whether two tensors have the same bits."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    return torch.equal(a.reshape(-1).view(torch.uint8), b.reshape(-1).view(torch.uint8))
