"""Construction of players: networks on their ranks, with optimiser, schedule and average."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import torch
from torch import nn

from paragan.config import choose
from paragan.core import registry
from paragan.core.capabilities import Capability, check_capabilities, needed
from paragan.core.dist import ALONE, World
from paragan.core.network_factory import NetworkFactory
from paragan.core.option_types import Choice
from paragan.core.types import Side
from paragan.game.ema import Ema
from paragan.game.network import Calling
from paragan.game.options import PlayerOptions
from paragan.game.player import Player
from paragan.game.policy import Policy
from paragan.game.snapshot import RemotePlayer, Snapshot
from paragan.game.structure import structure_of
from paragan.game.trained_part import fixed_names
from paragan.hardware import executors, precision
from paragan.parallel import MemoryOptions, Strategy


def player(
    side: Side,
    factory: NetworkFactory,
    options: PlayerOptions,
    scaled: bool = False,
    world: World = ALONE,
    executor: str = "eager",
) -> Player:
    """Return one side's player, placed by its strategy. scaled: gradients need a loss scale."""
    strategy = _strategy(side, options, world, factory.device)
    structure: dict[str, str] = {}  # for the check at a resume; before the strategy replaces or wraps layers

    def construct() -> nn.Module:
        net = factory.construct()
        structure.update(structure_of(net))
        return net

    net = _prepared(strategy, replace(factory, construct=construct), options, world)
    base = fixed_names(net) if options.trains_part else frozenset[str]()
    # the average is not padded: it runs for samples and scores alone
    ema = None if options.ema is None else Ema(strategy.prepare_average(factory, world), options.ema)
    calling = _calling(side, options, net, factory.device, scaled, executor)
    scaled_policy = policy(options).with_lr_factor(strategy.lr_factor(world))
    return Player(
        side=side,
        net=net,
        strategy=strategy,
        policy=scaled_policy,
        calling=calling,
        ema=ema,
        base=base,
        structure=structure,
    )


def _prepared(strategy: Strategy, factory: NetworkFactory, options: PlayerOptions, world: World) -> nn.Module:
    net = strategy.prepare(factory, world)
    if options.channel_multiple > 1:
        from paragan.layers.padded_channels import pad_channels

        pad_channels(net, options.channel_multiple)
    return net


def remote_player(
    side: Side, factory: NetworkFactory, options: PlayerOptions, has_state: bool = False, executor: str = "eager"
) -> RemotePlayer:
    """Return the slot of a player on other ranks, with its last received state.

    has_state: whether G's weights are received too, not only its images.
    """
    if side is Side.G and not has_state:
        return RemotePlayer(side, policy(options))
    net = _prepared(_strategy(side, options, ALONE, factory.device), factory, options, ALONE)
    calling = _calling(side, options, net, factory.device, executor=executor)
    return RemotePlayer(side, policy(options), Snapshot(net, calling))


def worker_player(side: Side, factory: NetworkFactory, options: PlayerOptions, executor: str = "eager") -> Player:
    """Return a server's player for a rank that computes gradients and never steps."""
    options = replace(options, ema=None, max_norm=None, offload=False)
    return player(side, factory, options, executor=executor)


def _calling(
    side: Side,
    options: PlayerOptions,
    net: nn.Module,
    device: torch.device,
    scaled: bool = False,
    executor: str = "eager",
) -> Calling:
    dtype = precision.dtype_of(options.precision, net, device, side)
    channels_last = precision.wants_channels_last(options.channels_last, net)
    return Calling(dtype, channels_last, scaled, executors.call_compiler(executor, device))


def _strategy(side: Side, options: PlayerOptions, world: World, device: torch.device) -> Strategy:
    """Return a player's strategy; default: `none` in a single process, `ddp` on several ranks."""
    choice = options.strategy or choose("parallel", "none" if world.size == 1 else "ddp")
    if world.group is None:  # without other ranks every strategy computes what `none` does
        choice = choose("parallel", "none")
    strategy = _make_strategy(choice, options, device)
    ranks = needed((world.size > 1, f"{side.value} on {world.size} ranks", Capability.RANKS))
    check_capabilities(strategy.holder, (*ranks, *options.needs(side.value)))
    return strategy


def strategy_on_ranks(options: PlayerOptions, device: torch.device) -> Strategy:
    """Return a player's strategy on several ranks, for forecasts; it places nothing."""
    return _make_strategy(options.strategy or choose("parallel", "ddp"), options, device)


def _make_strategy(choice: Choice, options: PlayerOptions, device: torch.device) -> Strategy:
    memory = MemoryOptions(
        recompute=options.recompute,
        offload=options.offload and device.type != "cpu",
        bf16_reduce=options.reduce == "bf16",
        weight_dtype=precision.DTYPES["pure"] if options.precision == "pure" else None,
        norm_ranks=options.norm_ranks,
    )
    return registry.load_module("parallel", choice.name).Strategy(choice.options, memory)


def describe_micro_batches(slots: Iterable[object], log: Callable[[str], None]) -> None:
    """Say which players normalise each of their micro-batches by itself."""
    for slot in slots:
        if isinstance(slot, Player) and slot.plain_network.mixes and slot.policy.micro_batches > 1:
            count = slot.policy.micro_batches
            log(f"{slot.side.value}.micro_batches: batch norm normalises each of the {count} micro-batches by itself")


def policy(options: PlayerOptions) -> Policy:
    """Return the policy of a player's options."""
    name = options.optimizer.name
    return Policy(
        kind=getattr(torch.optim, name, None) or registry.load_module("optim", name).Optimizer,
        lr=options.optimizer.lr,
        arguments=options.optimizer.arguments,
        schedule=options.schedule,
        max_norm=options.max_norm,
        micro_batches=options.micro_batches,
        updates_per_step=options.updates_per_step,
        groups=options.optimizer.groups,
        update_probability=options.update_probability,
    )
