"""From a resolved config to objects. The only file that knows every shelf; it constructs and never decides."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import cast

import torch
from torch import nn

from paragan.config import RunConfig
from paragan.core import rng, shelf
from paragan.core.errors import ConfigError
from paragan.core.outside import told
from paragan.core.seams import Penalty, Source, Strategy
from paragan.core.types import Can, Side
from paragan.engine.checkpoint import Checkpoints
from paragan.engine.desk import Desk
from paragan.engine.evaluate import Evaluator, Score
from paragan.engine.extractors import EXTRACTORS
from paragan.engine.judge import Judge, ready_made, train_or_load
from paragan.engine.telemetry import Telemetry
from paragan.engine.trainer import Scheme, Trainer
from paragan.game.ema import Ema
from paragan.game.gan import GAN, Loss
from paragan.game.network import CalledNetwork, Calling
from paragan.game.options import PlayerOptions
from paragan.game.player import Player
from paragan.game.policy import Policy
from paragan.game.prior import Prior
from paragan.game.trial import refuse_unfit
from paragan.hardware import device as devices
from paragan.hardware import precision
from paragan.layers.init import initialise
from paragan.loading.loader import Loader

_AT_CHANCE = (
    "score: the judge tells which way up images are for {:.0%} of unseen ones, {:.0%} by chance: its numbers may say "
    "little here; look at the pictures, or sort the images into classes"
)


@dataclass(frozen=True)
class Data:
    train: Source
    held_out: Source

    @property
    def num_classes(self) -> int:
        return len(self.train.class_names)


def data(config: RunConfig) -> Data:
    """Both splits of the data set; `DataError` if the files are not what they should be."""
    module = shelf.load("datasets", config.data.name)
    return Data(*(module.source(config.data.options, split) for split in ("train", "held_out")))


def maker(config: RunConfig, side: Side, found: Data, device: torch.device) -> Callable[[], nn.Module]:
    """Builds one side's network with the weights of step 0: keyed by name and seed, whoever asks and however often."""
    module = shelf.load("models", config.model.name)
    kind = module.Generator if side is Side.G else module.Discriminator
    name = f"model: {config.model.name}.{kind.__name__}"

    def make() -> nn.Module:
        with torch.random.fork_rng(devices=[]):  # outside networks draw from the global generator in their constructor
            torch.manual_seed(rng.key(config.seed, "construct", side.value))
            with told(f"{name}(options, shape, num_classes)") if "." in config.model.name else nullcontext():
                net = kind(config.model.options, found.train.shape, found.num_classes)
            if not isinstance(net, nn.Module):
                raise ConfigError(f"{name}: found no torch.nn.Module; derive the class from it")
        initialise(net, config.seed, side.value)
        return net.to(device)

    return make


def player(
    side: Side, make: Callable[[], nn.Module], options: PlayerOptions, device: torch.device, scaled: bool = False
) -> Player:
    """One side's player, placed by its strategy. scaled: its gradients need a loss scale."""
    strategy: Strategy = shelf.load("parallel", options.strategy).Strategy()
    net = strategy.prepare(make, None)
    dtype = precision.dtype_of(options.precision, net, device)
    channels_last = precision.wants_channels_last(options.channels_last, net)
    calling = Calling(dtype, channels_last, scaled)
    ema = None if options.ema is None else Ema(strategy.prepare(make, None), options.ema)
    if channels_last:
        for module in (net, *(() if ema is None else (ema.net,))):
            module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return Player(side, net, strategy, policy(options), calling, ema)


def policy(options: PlayerOptions) -> Policy:
    name = options.optimizer.name
    kind = getattr(torch.optim, name, None) or shelf.load("optim", name).Optimizer
    return Policy(
        kind,
        options.optimizer.lr,
        options.optimizer.arguments,
        options.schedule,
        options.max_norm,
        options.parts,
        options.updates_per_step,
    )


def gan(config: RunConfig, found: Data, device: torch.device) -> GAN:
    """Both players and the game between them; a loss or penalty that a strategy cannot run is refused here."""
    options = {Side.G: config.g, Side.D: config.d}
    # G's gradient passes through D: an fp16 D underflows it whatever G computes in
    scaled = {Side.G: "fp16" in (config.g.precision, config.d.precision), Side.D: config.d.precision == "fp16"}
    makers = {side: maker(config, side, found, device) for side in Side}
    seats = {side: player(side, makers[side], options[side], device, scaled[side]) for side in Side}
    module = shelf.load("losses", config.loss.name)
    loss = Loss(module.d_loss, module.g_loss, getattr(module, "G_NEEDS_REAL", False))
    penalties = [shelf.load("penalties", p.name).Penalty(p.options) for p in config.penalties]
    mine = {side: tuple(p for p in penalties if p.side is side) for side in Side}
    for side, seat in seats.items():
        refuse_what_it_cannot(options[side], seat, mine[side])
        _refuse_odd_counts(side, options[side], config.train.batch)
    generator = seats[Side.G].net
    prior = Prior(config.seed, _latent(generator), _classes_asked(generator, found), device)
    if "." in config.model.name + config.loss.name:  # outside code: a pair of its own, so that no state moves
        g, d = (CalledNetwork(makers[side]()) for side in (Side.G, Side.D))
        refuse_unfit(g, d, loss, prior, found.train.shape)
    shown = config.augment
    augment = None if shown is None else shelf.load("augment", shown.name).Augment(shown.options)
    return GAN(seats[Side.G], seats[Side.D], loss, prior, mine[Side.G], mine[Side.D], augment)


def refuse_what_it_cannot(options: PlayerOptions, seat: Player, penalties: tuple[Penalty, ...]) -> None:
    """`ConfigError` if the strategy or the network lacks something this player's settings need."""
    can = seat.strategy.can
    for penalty in penalties:
        if penalty.per_sample and seat.called.mixes:
            raise ConfigError(
                f"penalties: {penalty.name} needs a network that keeps samples apart, found batch norm in "
                f"{seat.side.value}; choose another norm (dcgan: model.d_norm=spectral)"
            )
        for need in penalty.needs - can:
            raise ConfigError(
                f"penalties: {penalty.name} needs {need.value}, which strategy {options.strategy!r} cannot run"
            )
    if options.parts > 1 and Can.PARTS not in can:
        raise ConfigError(
            f"parts: found {options.parts}, but strategy {options.strategy!r} runs one part only; set parts to 1"
        )


def scheme(config: RunConfig) -> Scheme:
    """A scheme without state is its module; one with settings or state is the module's `Scheme(options)`."""
    module = shelf.load("schemes", config.scheme.name)
    return cast(Scheme, module.Scheme(config.scheme.options) if hasattr(module, "Scheme") else module)


def _refuse_odd_counts(side: Side, options: PlayerOptions, batch: int) -> None:
    if options.parts > batch:
        found = f"{options.parts} parts of a batch of {batch}"
        raise ConfigError(f"{side.value}.parts: found {found}, expected at least one image in each")
    if side is Side.G and options.updates_per_step > 1:
        found = f"{options.updates_per_step}, but a step has one update of G"
        raise ConfigError(
            f"g.updates_per_step: found {found}; set d.updates_per_step, or use a smaller g learning rate"
        )


def scorer(
    config: RunConfig, found: Data, folder: Path, say: Callable[[str], None], must_keep: bool = True
) -> Callable[[Player, Prior], Score] | None:
    """Scores a generator player; None: scoring is off. must_keep: a judge that cannot be written is an error.

    A judge of the run's own is trained, or read from `folder`, when the first score is due; one from a file is read
    now, so that a missing file is told before anything is written.
    """
    options = config.score

    def scored_by(judge: Judge) -> Evaluator:
        return Evaluator(judge, found.train, found.held_out, options.num_images)

    match options.extractor:
        case "none":
            return None
        case name if name in EXTRACTORS:
            return scored_by(ready_made(name, Path(options.weights or _beside_the_data(config)), found.train.shape[-1]))

    @cache
    def evaluator() -> Evaluator:
        judge = train_or_load(found.train, found.held_out, folder, must_keep=must_keep)
        if found.num_classes < 2 and judge.accuracy is not None and judge.accuracy < 1.5 / judge.num_classes:
            say(_AT_CHANCE.format(judge.accuracy, 1 / judge.num_classes))
        return scored_by(judge)

    return lambda player, prior: evaluator()(player, prior)


def trainer(
    config: RunConfig, folder: Path, say: Callable[[str], None], stop: Callable[[], bool], reading: bool = False
) -> Trainer:
    """Everything for `config`, at step 0. Writes nothing. reading: nor needs to, later."""
    device = devices.pick(config.train.threads)
    found = data(config)
    game = gan(config, found, device)
    for seat in (game.g, game.d):
        if isinstance(seat, Player) and seat.called.mixes and seat.policy.parts > 1:
            say(f"{seat.side.value}.parts: batch norm sees each of the {seat.policy.parts} micro-batches by itself")
    return Trainer(
        game,
        scheme(config),
        Loader(found.train, config.train.batch, config.seed, device),
        round(config.train.kimg * 1000),
        config.every,
        Checkpoints(folder / "checkpoints", config.every.keep, say),
        scorer(config, found, folder / "judge", say, must_keep=not reading),
        stop,
        Telemetry(found.train, found.held_out, batch=config.train.batch),
    )


def desk(config: RunConfig, folder: Path, step: int) -> Desk:
    """The writers of a run that has come to `step`. Opens their files."""
    made = {w.name: shelf.load("writers", w.name).Writer(w.options, folder, step) for w in config.writers}
    return Desk(made.items())


def _latent(generator: nn.Module) -> int:
    latent = getattr(generator, "latent", None)
    if not isinstance(latent, int):
        raise ConfigError(f"model: {type(generator).__name__} has no `latent`, expected the length of z as an int")
    return latent


def _classes_asked(generator: nn.Module, found: Data) -> int:
    """How many classes latents come with.

    None for an unconditional generator. Outside networks may leave it to the data.
    """
    return int(getattr(generator, "num_classes", found.num_classes))


def _beside_the_data(config: RunConfig) -> Path:
    path, name = getattr(config.data.options, "path", None), config.score.extractor
    if path is None:
        raise ConfigError(
            f"score.weights: found nothing, expected the npz of the {name} extractor; give score.weights=FILE"
        )
    folder, file = Path(path), EXTRACTORS[name].file
    candidates = [folder / file, folder.parent / "classifiers" / file, folder.parent.parent / "classifiers" / file]
    return next((c for c in candidates if c.exists()), candidates[1])
