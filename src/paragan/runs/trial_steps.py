"""Trial steps before a run, on copies of its networks."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import count

import torch
from torch import nn

from paragan import build
from paragan.build.data import batch_stream
from paragan.build.loop import check_executor
from paragan.config import RunConfig
from paragan.core import rng
from paragan.core.dist import World
from paragan.core.network_factory import Model
from paragan.core.types import Batch, Rows, Side, present_tensors
from paragan.game.gan import GAN
from paragan.hardware import device as devices


class TrialRun:
    """Steps of the run without its data, folder and other ranks; the run's state does not change.

    Inputs are noise, or the tensors of a program, as many rows as this rank will have. model: as
    `build.network_factory` takes it. data: None: that of the config is opened.
    """

    def __init__(self, config: RunConfig, world: World, model: Model | None, data: build.Data | None = None) -> None:
        self.config = config
        self.model = model
        self.ranks = world.size
        is_alone = world.group is None
        self.device = devices.select_device(config.train.threads) if is_alone else world.device
        num_ranks = len(build.scheme(config).assign(world.size)[Side.D])
        self.rows = Rows(step=0, first=0, count=config.train.batch, total=config.train.batch).shares(num_ranks)[0].count
        self.data = data or build.open_data(config, model)

    def networks(self) -> Mapping[Side, nn.Module]:
        """Return the networks, for inspection."""
        sides = {side: build.network_factory(self.config, side, self.data, self.device, self.model) for side in Side}
        return {side: make.construct() for side, make in sides.items()}

    def stepper(self, config: RunConfig) -> Callable[[], object]:
        """Return a function that makes one step, with separate players."""
        return self.stepper_of(config, self.game(config))

    def game(self, config: RunConfig) -> GAN:
        """Return a game of this rank's rows."""
        train = replace(config.train, batch=self.rows)
        config = replace(config.with_all_losses_active, train=train)
        return build.gan(config, self.data, self.device, None, self.model)

    def stepper_of(self, config: RunConfig, game: GAN) -> Callable[[], object]:
        """Return a function that makes one step of this game."""
        check_executor(config, game, self.ranks)
        return partial(build.scheme(config).step, game, self._batches())

    def _batches(self) -> Iterator[Batch]:
        if self.data.is_image:
            return noise_batches(self.config, self.data, self.device, self.rows)
        whole = replace(self.config, train=replace(self.config.train, batch=self.rows))
        return batch_stream(whole, self.data.train, whole.seed, self.device)


def noise_batches(config: RunConfig, data: build.Data, device: torch.device, batch: int) -> Iterator[Batch]:
    """Yield batches of noise with the shapes of the data."""
    classes = data.num_classes
    rows = Rows(step=0, first=0, count=batch, total=batch)
    x = (rng.uniform(config.seed, "plan/x", rows, data.train.shape) * 2 - 1).to(device)
    y = rng.integers(config.seed, "plan/y", rows, classes).to(device) if classes else None
    condition = x.flip(-1)[:, : data.train.condition_channels] if data.has_pairs else None
    for step in count():
        yield Batch(replace(rows, step=step), present_tensors(image=x, label=y, condition=condition))
