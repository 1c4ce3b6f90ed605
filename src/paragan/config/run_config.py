"""Config of a run.

Options are plain dataclasses in the packages that use them. Nothing here imports torch.
"""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from paragan.config.grid_options import GridOptions
from paragan.core import registry
from paragan.core.capabilities import BACKGROUND, EXECUTORS, GRID, Capability, Need, missing, needed
from paragan.core.option_types import Category, Choice, Interval
from paragan.engine.options import Change, EveryOptions, InitOptions, LoadingOptions, RollbackOptions, TrainOptions
from paragan.evaluation.options import EvaluationOptions
from paragan.game.options import AdversarialOptions, PlayerOptions

_WRITERS = ("images", "jsonl", "console", "report")
_PLAYER = re.compile(r"[a-z][a-z0-9_]{0,63}", re.ASCII)
_ADDRESS = re.compile(r"[^\s:]+:\d{1,5}|\[[0-9a-fA-F:]+\]:\d{1,5}")


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """All settings of one run. Periods and lengths are in thousands of real images (kimg)."""

    data: Annotated[Choice, Category("datasets")]
    """The data set."""
    model: Annotated[Choice, Category("models")]
    """The pair of networks."""
    loss: Annotated[Choice, Category("losses")]
    """The adversarial loss."""
    adversarial: AdversarialOptions = field(default_factory=AdversarialOptions)
    """Weights of the adversarial losses."""
    penalties: tuple[Annotated[Choice, Category("penalties")], ...] = ()
    """Terms added to the losses, in order."""
    balancer: Annotated[Choice, Category("balancers")] | None = None
    """Weighs the terms of G's loss by their gradients at G's output; null: none."""
    g: PlayerOptions = field(default_factory=PlayerOptions)
    """The generator's optimiser, schedule, precision and placement."""
    d: PlayerOptions = field(default_factory=PlayerOptions)
    """The discriminator's optimiser, schedule, precision and placement."""
    players: dict[str, PlayerOptions] = field(default_factory=dict)
    """Extra networks that train, by name, in the order of their updates: the keys of g and d. Their
    losses are the terms with their names as side."""
    augment: Annotated[Choice, Category("augment")] | None = None
    """Differentiable augmentation of the images that D receives; null: none."""
    scheme: Annotated[Choice, Category("schemes")] = field(default_factory=lambda: default_scheme())
    """The order of updates in one step."""
    loading: LoadingOptions = field(default_factory=LoadingOptions)
    """Threads and batches read ahead."""
    train: TrainOptions = field(default_factory=TrainOptions)
    """Batch, length and execution."""
    every: EveryOptions = field(default_factory=EveryOptions)
    """Periods of samples, checkpoints and scores."""
    rollback: RollbackOptions | None = None
    """Return to a good checkpoint when training collapses; null: never."""
    evaluation: EvaluationOptions = field(default_factory=EvaluationOptions)
    """Scores, and how the generator is sampled."""
    writers: tuple[Annotated[Choice, Category("writers")], ...] = field(
        default_factory=lambda: tuple(choose("writers", name) for name in _WRITERS)
    )
    """Outputs written during the run; jsonl is required, it is the record."""
    grid: GridOptions | None = None
    """Train a population of pairs on a grid; train.kimg is then per cell. null: one pair."""
    workers: Annotated[int, Interval(ge=1, le=1024)] | None = None
    """Processes that share the cells of a grid; null: all cells in this one."""
    transport: Literal["gloo", "mpi"] = "gloo"
    """How the workers of a grid exchange genomes: gloo; mpi, under mpiexec."""
    coordinator: str = "127.0.0.1:0"
    """HOST:PORT on which the coordinator of a grid listens; port 0: any free one."""
    seed: int = 0
    """Seed of the run: weights, latents, data order, augmentation."""
    devices: Annotated[int, Interval(ge=1, le=1024)] | None = None
    """Devices of this host, one process each; null: all its accelerators, or one process on the
    CPU. Under torchrun, torchrun decides.
    """
    init: InitOptions | None = None
    """Another run's weights to start from; null: fresh weights."""
    history: tuple[Change, ...] = ()
    """Settings that were changed at a resume (`--change`). The run writes it."""

    def __post_init__(self) -> None:
        if not _ADDRESS.fullmatch(self.coordinator):
            raise ValueError(f"coordinator must be HOST:PORT, such as 127.0.0.1:0, not {self.coordinator!r}")
        if self.grid is None and self.workers is not None:
            raise ValueError(
                f"workers={self.workers} needs a grid; set grid.shape, or pass devices={self.workers} for one pair"
            )
        for name in self.players:
            if not _PLAYER.fullmatch(name) or name in ("g", "d"):
                raise ValueError(
                    f"players: the name {name!r} is invalid; use lowercase letters, digits and _, and not g or d"
                )
        self._check_capabilities()
        if self.grid is not None and 2 * self.grid.heartbeat_s >= self.train.timeout_s:
            raise ValueError(
                f"grid.heartbeat_s={self.grid.heartbeat_s:g} must be less than half of "
                f"train.timeout_s={self.train.timeout_s:g}; lower it, or raise train.timeout_s"
            )
        names = [writer.name for writer in self.writers]
        if "jsonl" not in names:
            others = [name for name in names if name not in _WRITERS]
            completed = [*_WRITERS, *others] if others else ["jsonl", *names]
            written = f"has only {', '.join(names)}" if names else "is empty"
            raise ValueError(
                f"writers {written}, and must include jsonl, the record of the run; use writers=[{','.join(completed)}]"
            )
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise ValueError(f"writers has {twice} twice; name each writer once")

    def _check_capabilities(self) -> None:
        """Raise `ValueError` for a setting that needs what another one does not have."""
        checks = [(GRID, self.needs)] if self.grid is not None else []
        checks += [(BACKGROUND, self.needs)] if self.evaluation.mode == "background" else []
        for name, player in self.player_options.items():
            key = player_key(name)
            checks += [(holder, player.needs(key)) for holder in player.holders(key)]
        for holder, needs in checks:
            if problem := missing(holder, needs):
                raise ValueError(problem)

    @property
    def needs(self) -> tuple[Need, ...]:
        """What the settings need of a scheme, strategy, executor, grid or command."""
        executor = self.train.executor
        needs = needed(
            (self.grid is not None, "grid", Capability.GRID),
            (self.grid and self.grid.opponents == "random", "grid.opponents=random", Capability.RANDOM_OPPONENTS),
            (self.players, "the setting players", Capability.EXTRA_PLAYERS),
            (self.init is not None, "init", Capability.INITIAL_WEIGHTS),
            (self.train.layout == "auto", "train.layout=auto", Capability.CHOICE),
            (self.rollback is not None, "rollback", Capability.ROLLBACK),
            (self.evaluation.mode == "background", "evaluation.mode=background", Capability.BACKGROUND),
        )
        eager = "use train.executor=eager"
        if executor in EXECUTORS:
            needs += (Need(f"train.executor={executor}", Capability.COMPILE, eager),)
        if executor == "graphs":
            needs += (Need("train.executor=graphs", Capability.GRAPHS, eager),)
        for name, player in self.player_options.items():
            needs += player.needs(player_key(name))
        return needs

    @property
    def player_options(self) -> dict[str, PlayerOptions]:
        """Options of all players by name."""
        return {"g": self.g, "d": self.d, **self.players}

    def with_player(self, name: str, options: PlayerOptions) -> RunConfig:
        """Return a copy with other options of a player."""
        changed: Any = {name: options}
        if name in self.players:
            changed = {"players": {**self.players, **changed}}
        return dataclasses.replace(self, **changed)

    @property
    def batches_per_step(self) -> int:
        """Batches of a step: one for each update of the player, other than G, with the most."""
        return max(options.updates_per_step for options in (self.d, *self.players.values()))

    @property
    def initial_paths(self) -> dict[str, tuple[Path, ...]]:
        """Files and folders with initial weights, by setting: init, g.init, d.init, …"""
        paths: dict[str, tuple[Path, ...]] = {}
        if self.init is not None:
            paths["init"] = (Path(self.init.path),)
        for name, player in self.player_options.items():
            if player.init is not None:
                paths[f"{player_key(name)}.init"] = tuple(map(Path, player.init.paths))
        return paths

    @property
    def extension_key(self) -> str | None:
        """Key that is set and that an extension of its name provides; None: the run is one game."""
        return None if self.grid is None else "grid"

    @property
    def images_per_report(self) -> int:
        """Real images of a step, or of a generation of each cell."""
        return self.train.batch * self.batches_per_step * (1 if self.grid is None else self.grid.batches)

    @property
    def coordinator_address(self) -> tuple[str, int]:
        """Host and port of the coordinator."""
        host, _, port = self.coordinator.rpartition(":")
        return host.strip("[]"), int(port)  # brackets only separate the port of an IPv6 address

    @property
    def with_all_losses_active(self) -> RunConfig:
        """This config with all losses that act during the training acting from its first batch."""
        return dataclasses.replace(self, adversarial=self.adversarial.started_within(self.train.kimg))

    @property
    def max_steps(self) -> range:
        """Range of the steps whose batches have `train.kimg` thousand real images."""
        images = round(self.train.kimg * 1000)
        return range(-(-images // (self.train.batch * self.batches_per_step)))


def player_key(name: str) -> str:
    """Return the key of a player's options: g, d or players.NAME."""
    return name if name in ("g", "d") else f"players.{name}"


def default_scheme() -> Choice:
    """Return the scheme of a config that names none, in which players take turns on the same ranks."""
    return choose("schemes", "synchronous")


def choose(category: str, name: str) -> Choice:
    """Return a file of a category with its default options."""
    return Choice(name, registry.options(category, name)())
