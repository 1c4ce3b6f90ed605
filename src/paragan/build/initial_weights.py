"""Initial weights of a run from files: another run's for both players (`init`), or per player (`g.init`)."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from paragan.build.networks import network_factory, with_part
from paragan.build.weight_sources import SourceWeights, read_player_source, read_source
from paragan.checkpoint.generator_state import GeneratorState
from paragan.checkpoint.layouts import ProjectWeights
from paragan.checkpoint.reader import check_base
from paragan.config import RunConfig, player_key
from paragan.core.errors import CheckpointError, ConfigError
from paragan.core.layout import Shape, StoredTensors, fingerprint, shapes_of
from paragan.core.network_factory import Model
from paragan.core.printable import size_text
from paragan.core.types import Side, player_label
from paragan.engine.training_loop import TrainingLoop
from paragan.game.initial_weights import LoadedWeights, start_from
from paragan.game.player import Player
from paragan.game.state import check_same
from paragan.game.trained_part import fixed_names
from paragan.layers.adapter import adapter_names, merge_adapters

_MAX_NAMED = 4  # tensors in one line


def load_initial_weights(
    config: RunConfig, trainer: TrainingLoop, model: Model | None, log: Callable[[str], None]
) -> tuple[RunConfig, list[str]]:
    """Copy the weights that `init`, `g.init`, `d.init`, … name into the players of `trainer`, at step 0.

    Returns the config with the sha256 of what was read, and a line about each of the settings.
    Raises `CheckpointError` if the weights are not those of `sha256`, or do not fit.
    """
    _check_not_split(config, trainer)
    lines: list[str] = []
    start = partial(_start_player, config=config, trainer=trainer, model=model, lines=lines)
    recorded = config
    if config.init is not None:
        source = read_source(Path(config.init.path), "init", log)
        source.check_unchanged("init", config.init.path, config.init.sha256)
        if source.is_of_either:
            best = max(Side, key=lambda side: _num_fitting(side, source, config, trainer))
            source = replace(source, networks={best.value: source.networks[best.value]})
        lines.append(_start_all(config, source, start))
        recorded = replace(recorded, init=replace(config.init, sha256=source.sha256))
    for name, options in config.player_options.items():
        if options.init is None:
            continue
        key = f"{player_key(name)}.init"
        source = read_player_source(Side(name), options.init, log)
        source.check_unchanged(key, options.init.path, options.init.sha256)
        loaded = start(Side(name), source)
        lines.append(f"{key} from {', '.join(options.init.paths)}: {_describe(Side(name), loaded, limit=None)}")
        if options.init.partial:
            log(_table(key, loaded))
        recorded = recorded.with_player(name, replace(options, init=replace(options.init, sha256=source.sha256)))
    return recorded, lines


def _check_not_split(config: RunConfig, trainer: TrainingLoop) -> None:
    if trainer.roles.is_split:
        raise ConfigError(
            f"{next(iter(config.initial_paths))} is not available with scheme.name={config.scheme.name} on several "
            "ranks; use one process, or another scheme"
        )


def _load_base(net: nn.Module, config: RunConfig, log: Callable[[str], None]) -> None:
    """Copy the weights that `g.init`, or `init`, names into a generator without a player, as far as they fit."""
    if config.g.init is not None:
        source = read_player_source(Side.G, config.g.init, log)
    elif config.init is not None:
        source = read_source(Path(config.init.path), "init", log)
    else:
        return
    weights = source.of(Side.G, config.g, net, config.model.name).weights
    with torch.no_grad():
        for name, value in net.state_dict().items():
            if weights.shapes.get(name) == tuple(value.shape):
                value.copy_(weights[name])


def _start_all(config: RunConfig, source: SourceWeights, start: Callable[[Side, SourceWeights], LoadedWeights]) -> str:
    """Start the players without an `init` of their own from another run's weights; return the line about them."""
    assert config.init is not None
    sides = [Side(name) for name, options in config.player_options.items() if options.init is None]
    loaded = {side: start(side, source) for side in sides}
    if loaded and not any(weights.parameters for weights in loaded.values()):
        raise CheckpointError(
            f"init.path {config.init.path} has no weight with the name and shape of one in this model; give a "
            f"run of model.name={config.model.name} with the same sizes"
        )
    text = "; ".join(_describe(side, weights) for side, weights in loaded.items())
    step = "" if source.step is None else f", step {source.step}"
    return f"init from {config.init.path}{step}: {text}"


def _num_fitting(side: Side, source: SourceWeights, config: RunConfig, trainer: TrainingLoop) -> int:
    player = trainer.players[side.value]
    weights = source.of(side, config.player_options[side.value], player.net, config.model.name).weights
    return sum(weights.shapes.get(name) == shape for name, shape in player.strategy.shapes(player.net).items())


def _start_player(
    side: Side, source: SourceWeights, config: RunConfig, trainer: TrainingLoop, model: Model | None, lines: list[str]
) -> LoadedWeights:
    """Copy a player's weights as far as they fit; its own `init` needs all, without `partial`.

    lines: receives a line about the project that the weights are of, if it is known.
    """
    player = trainer.players[side.value]
    options = config.player_options[side.value]
    stored = source.of(side, options, player.net, config.model.name)
    origin = "" if stored.published is None else _origin(stored.published, config)
    if options.init is not None:
        key = f"{player_key(side.value)}.init.path {', '.join(options.init.paths)}"
        source.check_prefix(key, side, options.init.prefix)
        try:
            _check_fit(key, player, stored.weights, options.init.partial)
        except CheckpointError as error:
            raise CheckpointError(f"{error}; {origin}" if origin else str(error)) from None

    def initial() -> dict[str, Any]:  # of the whole network at step 0; every rank constructs it
        return network_factory(config, side, trainer.batches.source, trainer.prior.device, model)().state_dict()

    loaded = start_from(player, stored.weights, stored.average, initial)
    if origin and loaded.tensors:
        lines.append(origin)
    return loaded


def _check_fit(key: str, player: Player, weights: StoredTensors, partial: bool) -> None:
    """Raise `CheckpointError` for weights that do not fit; partial: only if none does.

    key: setting and files, for messages.
    """
    label = player_label(player.side.value)
    adapters = adapter_names(player.net)
    shapes = {name: shape for name, shape in player.strategy.shapes(player.net).items() if name not in adapters}
    names = [name for name in player.strategy.parameter_names(player.net) if name not in adapters]
    if not any(weights.shapes.get(name) == shapes[name] for name in names):
        raise CheckpointError(
            f"{key} has no weight with the name and shape of one of {label}; names of the network are like "
            f"{', '.join(list(shapes)[:2])}, those of the file like {', '.join(list(weights.shapes)[:2])}: "
            f"set {player_key(player.side.value)}.init.prefix, or give the weights of this network"
        )
    texts = list_differences(shapes, weights.shapes)
    if texts and not partial:
        raise CheckpointError(
            f"{key} does not fit {label}: {_shorten(texts)}; pass {player.side.value}.init.partial=true "
            "to load the others, or give the weights of this network"
        )


def _origin(published: ProjectWeights, config: RunConfig) -> str:
    """Return whose weights these are, and the settings of the model that the file shows, with others here."""
    texts = []
    for name, value in published.settings.items():
        current = config.model.name if name == "name" else getattr(config.model.options, name, None)
        is_part = isinstance(value, dict) and isinstance(current, dict) and value.items() <= current.items()
        is_equal = is_part or current == value
        texts.append(f"model.{name}={value}" if is_equal else f"model.{name}={value} (here {current})")
    return f"weights of {published.project} with {', '.join(texts)}"


def _describe(side: Side, loaded: LoadedWeights, limit: int | None = _MAX_NAMED) -> str:
    """Return one line: how many tensors were loaded, and the first `limit` (None: all) that were not."""
    label = player_label(side.value)
    if not loaded.tensors:
        return f"{label} as initialised"
    average = " and the average" if loaded.with_average else ""
    text = f"{label} all {loaded.tensors} tensors{average}"
    if loaded.unmatched:
        total = loaded.tensors + len(loaded.unmatched)
        initialised = _shorten(_shape_texts(loaded.unmatched), limit)
        text = f"{label} {loaded.tensors} of {total} tensors{average}, as initialised: {initialised}"
    return f"{text}, not used: {_shorten(loaded.unused, limit)}" if loaded.unused else text


def _table(key: str, loaded: LoadedWeights) -> str:
    """Return a line for each tensor of either place that was not loaded, after the number of the others."""
    rows = []
    for name, (shape, stored) in loaded.unmatched.items():
        if stored is None:
            rows.append(("new", name, size_text(shape)))
        else:
            rows.append(("other shape", name, f"{size_text(shape)} here, {size_text(stored)} in the file"))
    rows += [("not used", name, size_text(shape)) for name, shape in loaded.unused.items()]
    width = max([len(name) for _, name, _ in rows], default=0)
    lines = [f"  {kind:<12} {name:<{width}}  {sizes}" for kind, name, sizes in rows]
    return "\n".join([f"{key}: {loaded.tensors} tensors loaded, {len(rows)} not", *lines])


def list_differences(here: Mapping[str, Shape], there: Mapping[str, Shape]) -> list[str]:
    """Return a text for each tensor that is missing in one of two places, or has another shape there."""
    differing = {name: (shape, there.get(name)) for name, shape in here.items() if there.get(name) != shape}
    return _shape_texts(differing) + [f"{name} (missing in the network)" for name in there if name not in here]


def _shape_texts(left: Mapping[str, tuple[Shape, Shape | None]]) -> list[str]:
    texts = []
    for name, (shape, stored) in left.items():
        text = "missing in the file" if stored is None else f"{size_text(shape)} here, {size_text(stored)} in the file"
        texts.append(f"{name} ({text})")
    return texts


def _shorten(names: Iterable[str], limit: int | None = _MAX_NAMED) -> str:
    texts = list(names)
    named = texts[:limit]
    more = f", and {len(texts) - len(named)} more" if len(texts) > len(named) else ""
    return f"{', '.join(named)}{more}"


def merged_generator(net: nn.Module, config: RunConfig, state: GeneratorState, log: Callable[[str], None]) -> nn.Module:
    """Load the trained part of a run into its generator, merge the adapters, and return it as a plain network.

    net: as at step 0, but for `g.init`, which is read here. Raises `CheckpointError` if the base is
    not that of the training.
    """
    net = with_part(net, Side.G, config.g)
    _load_base(net, config, log)
    tensors = net.state_dict()
    base = {name: tensors.pop(name) for name in fixed_names(net)}
    check_base(state.path, state.values, Side.G.value, fingerprint(base))
    check_same(shapes_of(state.weights), shapes_of(tensors), str(state.path))
    net.load_state_dict(state.weights, strict=False)
    return merge_adapters(net)
