"""The game, its players, scheme and trainer from a resolved config. Constructs objects from every category of files."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from math import gcd, lcm
from pathlib import Path

import torch
from torch import nn

from paragan.build.data import Data, open_data, refuse_unpaired
from paragan.build.evaluation import extractor_context, never, scorer
from paragan.checkpoint.writer import CheckpointWriter
from paragan.config import RunConfig, choose, outside_names
from paragan.core import registry, rng
from paragan.core.dist import ALONE, World
from paragan.core.errors import ConfigError
from paragan.core.network_factory import Model, NetworkFactory
from paragan.core.option_types import Choice
from paragan.core.outside_code import reraise_as_config_error
from paragan.core.protocols import Strategy
from paragan.core.roles import Roles, colocated_roles
from paragan.core.types import Can, Side
from paragan.engine.multi_writer import MultiWriter
from paragan.engine.telemetry import Telemetry
from paragan.engine.trainer import Trainer
from paragan.evaluation.fixed_samples import FixedSamples
from paragan.game.compiled import refuse_unsupported_executor
from paragan.game.ema import Ema
from paragan.game.gan import GAN, Loss
from paragan.game.network import Calling
from paragan.game.options import PlayerOptions
from paragan.game.player import Player
from paragan.game.policy import Policy
from paragan.game.prior import Prior, latent_of
from paragan.game.remote_player import RemotePlayer
from paragan.game.scheme import Batches, FunctionScheme, Scheme
from paragan.game.snapshot import Snapshot
from paragan.game.state_buffers import attach_state, refuse_state
from paragan.game.turn_validation import validate
from paragan.game.validation import refuse_invalid_counts, refuse_unsupported
from paragan.hardware import device as devices, executors, precision
from paragan.layers.init import initialise
from paragan.loading.batch_rows import BatchRows
from paragan.loading.loader import Loader
from paragan.parallel._memory_options import MemoryOptions


def maker(
    config: RunConfig, side: Side, found: Data, device: torch.device, model: Model | None = None
) -> NetworkFactory:
    """Builds one side's network with the weights of step 0: keyed by name and seed, on any rank and at any time.

    model: networks from memory, instead of the file that `config.model` names; they still receive its options.
    """
    options, outside = config.g if side is Side.G else config.d, _is_outside(config, model)
    module = model or registry.load("models", config.model.name)
    kind = module.Generator if side is Side.G else module.Discriminator
    name = f"model: {'' if model else f'{config.model.name}.'}{kind.__name__}"

    def fill(net: nn.Module) -> None:
        initialise(net, config.seed, side.value)

    def construct() -> nn.Module:
        with torch.random.fork_rng(devices=[]):  # outside networks draw from the global generator in their constructor
            torch.manual_seed(rng.key(config.seed, "construct", side.value))
            with reraise_as_config_error(f"{name}(options, shape, num_classes)") if outside else nullcontext():
                net = kind(config.model.options, found.train.shape, found.num_classes)
            if not isinstance(net, nn.Module):
                raise ConfigError(f"{name} is not a torch.nn.Module; derive the class from it")
        if precision.wants_channels_last(options.channels_last, net):
            net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        if outside:
            fill(net)  # it may keep what its constructor drew, and that takes the whole of it
        return net

    return NetworkFactory(construct, None if outside else fill, device)


def player(
    side: Side,
    make: NetworkFactory,
    options: PlayerOptions,
    scaled: bool = False,
    world: World = ALONE,
    executor: str = "eager",
) -> Player:
    """One side's player, placed on the ranks by its strategy. scaled: its gradients need a loss scale."""
    strategy = _strategy(side, options, world, make.device)
    net = strategy.prepare(make, world)
    ema = None if options.ema is None else Ema(strategy.prepare_average(make, world), options.ema)
    calling = replace(
        _calling(options, net, make.device, scaled), compiler=executors.call_compiler(executor, make.device)
    )
    return Player(side, net, strategy, policy(options), calling, ema)


def away(side: Side, make: NetworkFactory, options: PlayerOptions) -> RemotePlayer:
    """The seat of a player that other ranks hold. D is known here as it was sent last; G by its images alone."""
    if side is Side.G:
        return RemotePlayer(side, policy(options))
    net = _strategy(side, options, ALONE, make.device).prepare(make, ALONE)
    return RemotePlayer(side, policy(options), Snapshot(net, _calling(options, net, make.device)))


def copy(side: Side, make: NetworkFactory, options: PlayerOptions) -> Player:
    """The player of a server, on a rank that plays its turns and never steps: nothing that only a step needs."""
    return player(side, make, replace(options, ema=None, max_norm=None, offload=False))


def _calling(options: PlayerOptions, net: nn.Module, device: torch.device, scaled: bool = False) -> Calling:
    dtype = precision.dtype_of(options.precision, net, device)
    return Calling(dtype, precision.wants_channels_last(options.channels_last, net), scaled)


def _strategy(side: Side, options: PlayerOptions, world: World, device: torch.device) -> Strategy:
    """The strategy of a player; by default `none` in a single process and `ddp` on several ranks."""
    chosen = options.strategy or choose("parallel", "none" if world.size == 1 else "ddp")
    if world.group is None:
        chosen = choose("parallel", "none")
    pure = precision.DTYPES["pure"] if options.precision == "pure" else None
    offload = options.offload and device.type != "cpu"
    demands = MemoryOptions(options.recompute, offload, options.reduce == "bf16", pure, options.norm_ranks)
    strategy: Strategy = registry.load("parallel", chosen.name).Strategy(chosen.options, demands)
    if world.size > 1 and not strategy.joins_ranks:
        raise ConfigError(f"{side.value}.strategy={chosen.name} does not support {world.size} ranks; use ddp, zero3, …")
    return strategy


def policy(options: PlayerOptions) -> Policy:
    name = options.optimizer.name
    kind = getattr(torch.optim, name, None) or registry.load("optim", name).Optimizer
    return Policy(
        kind,
        options.optimizer.lr,
        options.optimizer.arguments,
        options.schedule,
        options.max_norm,
        options.micro_batches,
        options.updates_per_step,
        options.optimizer.groups,
    )


def _is_outside(config: RunConfig, model: Model | None) -> bool:
    """Whether the networks are somebody else's: looked at before they play, and with their constructor's weights."""
    return model is not None or "." in config.model.name


def gan(
    config: RunConfig,
    found: Data,
    device: torch.device,
    roles: Roles | None = None,
    model: Model | None = None,
    turns: bool = True,
) -> GAN:
    """Both seats and the game between them; a loss or penalty that a strategy cannot run is refused here.

    turns: foreign code is validated by an update of either side too.
    """
    roles = colocated_roles(ALONE) if roles is None else roles
    options = {Side.G: config.g, Side.D: config.d}
    # G's gradient passes through D: an fp16 D underflows it whatever G computes in
    scaled = {Side.G: "fp16" in (config.g.precision, config.d.precision), Side.D: config.d.precision == "fp16"}
    makers = {side: maker(config, side, found, device, model) for side in Side}
    how = config.train.executor
    players = {
        side: player(side, makers[side], options[side], scaled[side], roles.batch_world, how) for side in roles.sides
    }
    stand_in = copy if roles.has_server else away
    seats = {side: players.get(side) or stand_in(side, makers[side], options[side]) for side in Side}
    refuse_unpaired(config, found, _is_outside(config, model), model)
    loss = adversarial(config.loss)
    penalties = [registry.load("penalties", p.name).Penalty(p.options) for p in config.penalties]
    mine = {side: tuple(p for p in penalties if p.side is side) for side in Side}
    for side, seat in players.items():
        refuse_unsupported(options[side], seat, mine[side], loss.needs, config.loss.name)
        refuse_invalid_counts(side, options[side], config.train.batch, roles.batch_world)
    latents = prior(config, players[Side.G].net if Side.G in players else makers[Side.G].construct(), found, device)
    shown = config.augment
    augment = None if shown is None else registry.load("augment", shown.name).Augment(shown.options)
    game = GAN(
        seats[Side.G], seats[Side.D], loss, latents, mine[Side.G], mine[Side.D], augment, total=roles.batch_world.sum
    )
    attach_state(game, device)
    if model is not None or outside_names(config):  # a pair of its own, so that no state moves
        validate(game, makers, found.train.shape, found.num_classes, found.has_pairs, turns)
    if roles.is_split:
        refuse_state(game, f"scheme.{config.scheme.name}", roles.has_server)
    return game


def adversarial(chosen: Choice) -> Loss:
    """The pair of a file of `losses/`."""
    module = registry.load("losses", chosen.name)
    pair = module.Loss(chosen.options) if hasattr(module, "Loss") else module
    compares = Can.COUPLED in getattr(module, "NEEDS", ())
    return Loss(pair.d_loss, pair.g_loss, getattr(module, "G_NEEDS_REAL", False), compares)


def prior(config: RunConfig, generator: nn.Module, found: Data, device: torch.device) -> Prior:
    """Of the run. Outside networks may leave it to the data whether there are classes."""
    classes = int(getattr(generator, "num_classes", found.num_classes))
    return Prior(config.seed, latent_of(generator), classes, device)


def scheme(config: RunConfig) -> Scheme:
    """The scheme of a run: its module's `Scheme`, built with its options if it has some, or the function `step`."""
    module = registry.load("schemes", config.scheme.name)
    if not hasattr(module, "Scheme"):
        return FunctionScheme(module.step)
    made: Scheme = module.Scheme(config.scheme.options) if hasattr(module, "Options") else module.Scheme()
    return made


def trainer(
    config: RunConfig,
    folder: Path,
    say: Callable[[str], None],
    stop: Callable[[], bool],
    reading: bool = False,
    world: World = ALONE,
    model: Model | None = None,
) -> Trainer:
    """Everything for `config`, at step 0; writes nothing. reading: nor needs to, later. model: as `maker` takes it."""
    device = devices.select_device(config.train.threads) if world.group is None else world.device
    found = open_data(config, shared=world.group is not None)
    if not reading:
        _refuse_offload(config, device)
    order = scheme(config)
    roles = order.roles(world, config.train.timeout_s)
    game = gan(config, found, device, roles, model)
    order.refuse(game, found.has_pairs)
    if not reading:
        options = {Side.G: config.g, Side.D: config.d}
        refuse_unsupported_executor(config.train.executor, game, options, roles.batch_world.size, order.is_concurrent)
    _describe_micro_batches(game, say)
    stop_scores = never if roles.is_split else stop
    context = extractor_context(
        config, found, folder, say, device, must_save=not reading, world=roles.batch_world, stop=stop_scores
    )
    return Trainer(
        game,
        order,
        _batches(config, found, device, roles),
        round(config.train.kimg * 1000),
        config.every,
        CheckpointWriter(folder / "checkpoints", config.every.keep, say, world),
        scorer(config, context),
        stop,
        Telemetry(found.train, found.held_out, batch=config.train.batch),
        fixed_samples=FixedSamples(config.evaluation.mode, found.held_out if found.has_pairs else None),
        roles=roles,
        sync_period=_period(config, roles),
    )


def _refuse_offload(config: RunConfig, device: torch.device) -> None:
    if device.type == "cpu" and (config.g.offload or config.d.offload):
        side = "g" if config.g.offload else "d"
        raise ConfigError(f"{side}.offload=true needs an accelerator; pass {side}.offload=false")


def _describe_micro_batches(game: GAN, say: Callable[[str], None]) -> None:
    for seat in (game.g, game.d):
        if isinstance(seat, Player) and seat.plain_network.mixes and seat.policy.micro_batches > 1:
            count = seat.policy.micro_batches
            say(f"{seat.side.value}.micro_batches: batch norm normalises each of the {count} micro-batches by itself")


def _batches(config: RunConfig, found: Data, device: torch.device, roles: Roles) -> Batches:
    """Of D's updates; where no turn of D's is played, which rows they have is enough."""
    share = roles.batch_world.share(config.train.batch)
    if Side.D in roles.trained_sides:
        return Loader(found.train, config.train.batch, config.seed, device, share=share, flip=found.flip)
    return BatchRows(found.train, config.train.batch, share)


def _period(config: RunConfig, roles: Roles) -> int:
    """Steps between two moments at which the ranks of each player meet; where they sit together, players know."""
    periods = []
    for side, options in ((Side.G, config.g), (Side.D, config.d)):
        if options.strategy is not None and len(roles.ranks.get(side, ())) > 1:
            kind = registry.load("parallel", options.strategy.name).Strategy
            updates = kind(options.strategy.options).sync_period
            periods.append(updates // gcd(updates, options.updates_per_step))
    return lcm(*periods)


def writers(config: RunConfig, folder: Path, step: int) -> MultiWriter:
    """The writers of a run that has come to `step`. Opens their files."""
    made = {w.name: registry.load("writers", w.name).Writer(w.options, folder, step) for w in config.writers}
    return MultiWriter(made.items())
