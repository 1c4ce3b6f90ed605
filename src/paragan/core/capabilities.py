"""Capabilities: what settings and terms need, and what schemes, strategies, executors and grids have.

One comparison refuses every pair that does not fit, so a new scheme or strategy only declares what
it has (docs/internals/design/042-capabilities.md). Nothing here imports torch.
"""

import enum
from collections.abc import Iterable
from dataclasses import dataclass

from paragan.core.errors import ConfigError


class Capability(enum.Enum):
    """Something that a setting or term needs, and a holder has or has not; the value is its words in messages."""

    # of a turn
    DOUBLE_BACKWARD = "double backward"
    COUPLED = "access to all samples of a batch"
    SEPARATE_SAMPLES = "outputs that do not depend on other samples"
    PARTS = "micro-batches"
    WHOLE_WEIGHTS = "whole weights"
    PART = "training of a part of the network"
    BALANCER = "gradients of the whole batch in every update"
    LAYER_GRADIENTS = "a call of G's layer in G's turn"
    # of memory and precision
    PURE = "weights in bf16"
    LOSS_SCALE = "a common loss scale"
    OFFLOAD = "offload from an accelerator"
    RECOMPUTE = "recomputed activations"
    PADDING = "padded channels"
    NORM_RANKS = "batch norm over chosen ranks"
    COMPILE = "compiled turns"
    GRAPHS = "recorded launches on an accelerator"
    RANKS = "several ranks"
    # of a step
    EXTRA_PLAYERS = "players other than G and D"
    PAUSES = "steps without an update of D"
    REAL_IN_G_TURN = "real samples in G's turn"
    PAIRS = "an input image for each sample"
    BATCH_INPUTS = "the tensors of the batch in G's turn"
    RAGGED = "tensors of any length"
    SCHEDULES = "weights that change"
    TERM_STATE = "state of terms from step to step"
    AUGMENT_STATE = "state of the augmentation from step to step"
    # of a run
    GRID = "training of several cells"
    RANDOM_OPPONENTS = "opponents drawn for each turn"
    STACKED = "turns of all cells as one"
    RECORDED = "turns that share no images"
    INITIAL_WEIGHTS = "weights to start from"
    CHOICE = "settings chosen by measurement"
    BACKGROUND = "scores by another process"
    ROLLBACK = "a return to an earlier checkpoint"
    FORECAST = "a forecast for other numbers of workers"


ALL = frozenset(Capability)


@dataclass(frozen=True)
class Need:
    """A capability that a setting or term needs. what: its name in messages; fix: what to do without it."""

    what: str
    capability: Capability
    fix: str = "leave it out"


@dataclass(frozen=True)
class Holder:
    """A part of a run and its capabilities. instead: the end of messages, what to use that has more."""

    name: str
    capabilities: frozenset[Capability]
    instead: str = ""


def needed(*rows: tuple[object, str, Capability]) -> tuple[Need, ...]:
    """Return the needs of the rows (is it used, what, capability) whose first value is true."""
    return tuple(Need(what, capability) for is_used, what, capability in rows if is_used)


def missing(holder: Holder, needs: Iterable[Need]) -> str:
    """Return what the first need is that the holder does not fulfil, and what to do; empty if it has all."""
    for need in needs:
        if need.capability not in holder.capabilities:
            fix = f"{need.fix}, or {holder.instead}" if holder.instead else need.fix
            return f"{need.what} needs {need.capability.value}, which {holder.name} does not support; {fix}"
    return ""


def check_capabilities(holder: Holder, needs: Iterable[Need]) -> None:
    """Raise `ConfigError` for the first need that the holder does not fulfil."""
    if problem := missing(holder, needs):
        raise ConfigError(problem)


# Holders without a class of their own; schemes and strategies declare theirs.
_PAIR = "train one pair (grid=null)"
_EAGER = "use train.executor=eager"
GRID = Holder(
    "a grid",
    ALL
    - {Capability.INITIAL_WEIGHTS, Capability.COMPILE, Capability.GRAPHS, Capability.CHOICE}
    - {Capability.EXTRA_PLAYERS, Capability.BACKGROUND, Capability.ROLLBACK}
    - {Capability.PADDING, Capability.PART, Capability.PURE, Capability.RANKS, Capability.PAIRS}
    - {Capability.BALANCER, Capability.TERM_STATE, Capability.AUGMENT_STATE},
    _PAIR,
)
_OF_COMPILED = ALL - {Capability.RECOMPUTE, Capability.PADDING, Capability.LAYER_GRADIENTS}
EXECUTORS = {
    "compile": Holder("train.executor=compile", _OF_COMPILED, _EAGER),
    "graphs": Holder("train.executor=graphs", _OF_COMPILED - {Capability.PARTS, Capability.RANKS}, _EAGER),
}
BACKGROUND = Holder("evaluation.mode=background", ALL - {Capability.ROLLBACK}, "set evaluation.mode=inline")
NETWORKS_FROM_MEMORY = Holder(
    "a pair of networks from Python", ALL - {Capability.GRID, Capability.BACKGROUND}, "set model.name to a module"
)
NAMED_TENSORS = Holder("a model for named tensors", ALL - {Capability.BACKGROUND})
DATA_FROM_MEMORY = Holder("a Trainer on tensors from Python", ALL - {Capability.GRID})
SCALING_MANAGER = Holder("a ScalingManager", ALL - {Capability.BACKGROUND})
REPLAY = Holder("paragan replay", ALL - {Capability.GRID}, "pass the run of one pair")
PLAN = Holder("paragan plan", ALL - {Capability.GRID}, "plan a recipe without it")
CHOOSER = Holder("the choice of settings (--choose, train --plan)", ALL - {Capability.EXTRA_PLAYERS})
