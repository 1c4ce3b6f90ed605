"""Trial of a game with custom code before a run writes anything: each error is one line that names its cause."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from paragan.core import rng
from paragan.core.errors import ConfigError
from paragan.core.not_finite import finite_tensors
from paragan.core.outputs import DiscriminatorOutput, GeneratorOutput
from paragan.core.outside_code import reraise_as_config_error
from paragan.core.printable import counted
from paragan.core.source import Source
from paragan.core.tensor_game import LATENT
from paragan.core.types import Batch, Rows, Side, TurnInputs, present_tensors
from paragan.game.bounded_logits import notice_bounded_logits, notice_steep_logits
from paragan.game.gan import GAN
from paragan.game.gradient_flow import (
    check_trainable_output,
    flat_discriminators,
    notice,
    notice_equal_logits,
    notice_flat_logits,
    notice_ignored_inputs,
)
from paragan.game.held_state import HeldState
from paragan.game.label_use import check_label_arguments, ignores_labels
from paragan.game.network import CalledNetwork
from paragan.game.penalty_trial import generator_states, run_each_penalty
from paragan.game.plain_layers import check_plain_layers
from paragan.game.player import Player
from paragan.game.registered_state import RegisteredState
from paragan.game.shared_memory import check_separate
from paragan.layers.random import repeats
from paragan.loading.normalise import normalise_images

MAX_ROWS = 4
_RANGES = {"Tanh": (-1, 1), "Sigmoid": (0, 1)}
_SHAPES = ("View", "Reshape", "UnsafeView", "Squeeze", "Unsqueeze", "Select", "ToCopy", "Alias", "Clone", "Permute")
_READS_STATE = "reads a generator of its own, or an attribute that changes"
Makers = Mapping[Side, Callable[[], nn.Module]]


def validate(
    game: GAN, makers: Makers, source: Source, is_image: bool, turns: bool = True, batch: int = MAX_ROWS
) -> None:
    """Run both networks, the loss and every penalty once; of images on noise, and check the use of labels.

    makers: build networks for this. source: training data, of which nothing is read for images; its first samples
    are tried for named tensors. Of `game` only `prior.uses_labels` changes. turns: False leaves the penalties
    out. batch: samples of a call in training, of which the trial has up to 4. Raises `ConfigError`.
    """
    nets = {side: make() for side, make in makers.items()}
    for side, net in nets.items():
        check_plain_layers(f"model of {side.value}", net)
    check_separate({f"model of {side.value}": net for side, net in nets.items()})
    has_labels = is_image and source.condition_channels is None
    if has_labels:
        for side in Side:
            check_label_arguments(side, nets[side], game.prior.num_classes)
    count = min(batch, MAX_ROWS)
    with torch.random.fork_rng(devices=[]):
        real = _noise(game, source, count) if is_image else _first_samples(source, game, count)
        _Trial(game=game, nets=nets, real=real, calls=_calls(game, has_labels, is_image)).run(turns)
    if game.prior.num_classes and has_labels:
        game.prior = replace(game.prior, uses_labels=not ignores_labels(nets[Side.G], game.prior))


def _calls(game: GAN, has_labels: bool, is_image: bool) -> dict[Side, str]:
    """Return the calls of the networks, for messages."""
    if is_image:
        names = "y" if has_labels else "y, condition"
        return {Side.G: f"model: Generator.forward(z, {names})", Side.D: f"model: Discriminator.forward(x, {names})"}
    of_g = ", ".join(game.prior.generator_arguments or ())
    of_d = ", ".join(game.prior.discriminator_arguments)
    return {Side.G: f"generator: forward({of_g})", Side.D: f"discriminator: forward({of_d})"}


def _noise(game: GAN, source: Source, count: int) -> Batch:
    """Return `count` images of noise, with labels and conditions if the data has some."""
    rows = Rows(step=0, first=0, count=count, total=count)
    prior = game.prior

    def images(stream: str, channels: int) -> Tensor:
        drawn = rng.uniform(prior.seed, f"trial/{stream}", rows, (channels, *source.shape[1:]))
        return (drawn * 2 - 1).to(prior.device, prior.dtype)

    y = None
    if num_classes := len(source.class_names):
        y = rng.integers(prior.seed, "trial/real", rows, num_classes).to(prior.device)
        y[-1] = num_classes - 1  # for which a network may have no row
    channels = source.condition_channels
    condition = None if channels is None else images("condition", channels)
    return Batch(rows, present_tensors(image=images("real", source.shape[0]), label=y, condition=condition))


def _first_samples(source: Source, game: GAN, count: int) -> Batch:
    """Return the first samples of named tensors, up to `count`, with the lowest and the highest label."""
    count = min(count, len(source) or count)
    rows = np.arange(count)
    if (labels_N := source.row_labels()) is not None:  # those that a network may have no row for
        rows[0], rows[-1] = labels_N.argmin(), labels_N.argmax()
    finite = finite_tensors(source.fetch(rows, rows), source, lambda row: source.where(int(rows[row])))
    moved = {name: value.to(game.prior.device) for name, value in finite.items()}
    tensors = normalise_images(moved, source, game.prior.dtype)
    return Batch(Rows(step=0, first=0, count=count, total=count), tensors)


@dataclass(frozen=True, kw_only=True)
class _Trial:
    """One forward and backward pass of both networks and the loss.

    calls: of the networks, in messages. drawing: players whose turns draw from a global generator, of torch,
    numpy or `random`. extra: names of what else G returns.
    """

    game: GAN
    nets: Mapping[Side, nn.Module]
    real: Batch
    calls: Mapping[Side, str]
    drawing: set[Side] = field(default_factory=set)
    extra: list[str] = field(default_factory=list)

    def run(self, turns: bool) -> None:
        """Raise `ConfigError` for a network or loss that is wrong; turns: also for a penalty."""
        feed = self.game.prior.feed("trial", self.real)
        states = {side: RegisteredState(net) for side, net in self.nets.items()}
        generated = self._generate(feed)
        fake = generated.images
        on_real = self._judge(feed.real_inputs)
        states[Side.G].check(self.calls[Side.G], [fake, *generated.extra.values()])
        states[Side.D].check(self.calls[Side.D], _tensors(on_real))
        on_fake = self._judge_fake(fake, feed)
        flat = flat_discriminators(on_fake, fake, repr(feed.sample_name), self._call_of)
        loss = self.game.loss
        for name, output in on_real.by_name.items():
            real_B, fake_B = output.logits_B, on_fake.by_name[name].logits_B
            self._try_function("d_loss", "real, fake", loss.d, (real_B, fake_B))
            arguments = "fake, real" if loss.g_needs_real else "fake, None; g_needs_real=True passes real logits"
            self._try_function("g_loss", arguments, loss.g, (fake_B, real_B if loss.g_needs_real else None))
        self._notice_hidden_state(Side.G, feed.fake_inputs)
        self._notice_hidden_state(Side.D, feed.real_inputs)
        if turns:
            self.drawing.update(run_each_penalty(self.game, self.nets, self.real, self.extra))
        for side in self.drawing:  # its turns seed the generators, although no layer says that it draws
            if isinstance(player := self.game.slots[side], Player):
                player.declare_draws()
        notice_bounded_logits(self.nets[Side.D], feed.real_inputs, self._call_of, self.game.loss)
        on_fakes = (fake.detach(), *feed.fake_conditions)
        notice_flat_logits(self.nets[Side.D], on_fakes, flat, self._call_of)
        notice_equal_logits(self.nets[Side.D], on_fakes, self._call_of)
        notice_steep_logits(self.nets[Side.D], on_fakes, self.calls[Side.D], self.game.loss, self.game.d_penalties)
        names = self.game.prior.generator_arguments or ("z", "y", "condition")
        notice_ignored_inputs(self.nets[Side.G], dict(zip(names, feed.fake_inputs, strict=False)), self.calls[Side.G])

    def _generate(self, feed: TurnInputs) -> GeneratorOutput:
        output = self._call_generator(feed)
        self.extra.extend(output.extra)
        fake = output.images
        expected = tuple(feed.real_sample.shape)
        if not isinstance(fake, Tensor) or tuple(fake.shape) != expected:
            several = ", or paragan.GeneratorOutput(sample, {NAME: tensor}) for several"
            raise ConfigError(
                f"{self.calls[Side.G]} returned {_description(fake)}; return one of the shape of {feed.sample_name!r} "
                f"in a batch: {expected}{'' if isinstance(fake, Tensor) else several}"
            )
        check_trainable_output(self.calls[Side.G], self.nets[Side.G], fake, "values")
        self._notice_range(fake, feed)
        return output

    def _call_generator(self, feed: TurnInputs) -> GeneratorOutput:
        """As `_call`; where G fails and its latent has the length 0, that may be the reason."""
        arguments = self.game.prior.generator_arguments
        try:
            output: GeneratorOutput = self._call(Side.G, GeneratorOutput, feed.fake_inputs)
        except ConfigError as error:
            if self.game.prior.latent or (arguments is not None and LATENT not in arguments):
                raise
            empty = "empty" if arguments is None else "None"
            raise ConfigError(
                f"{error}; its attribute latent is 0, so that its latent is {empty}: set the length of the latent if "
                "G reads one"
            ) from None
        return output

    def _judge(self, inputs: tuple[Tensor | None, ...]) -> DiscriminatorOutput:
        output: DiscriminatorOutput = self._call(Side.D, DiscriminatorOutput, inputs)
        for name, member in output.by_name.items():
            call = self._call_of(name)
            if not self._has_rows(member.logits_B):
                count = self.real.rows.count
                is_mean = isinstance(member.logits_B, Tensor) and member.logits_B.numel() == 1
                raise ConfigError(
                    f"{call} returned {_description(member.logits_B)} for {counted(count, 'sample')}; keep the batch "
                    f"axis: a logit, or several, for each, of shape ({count},) or ({count}, …)"
                    f"{', not one mean of the batch' if is_mean else ''}"
                )
            check_trainable_output(call, self.nets[Side.D], member.logits_B, "logits")
        return output

    def _call_of(self, name: str) -> str:
        """Return the call of a discriminator, for messages. name: of one of several, else empty."""
        return f"{self.calls[Side.D]} {name}".strip()

    def _judge_fake(self, fake: Tensor, feed: TurnInputs) -> DiscriminatorOutput:
        """As `_judge`; where D fails, another dtype than that of the data is the reason."""
        try:
            return self._judge((fake, *feed.fake_conditions))
        except ConfigError as error:
            if fake.dtype == feed.real_sample.dtype:
                raise
            raise ConfigError(
                f"{self.calls[Side.G]} returned {fake.dtype}, and {feed.sample_name!r} is {feed.real_sample.dtype}: "
                f"return one of that dtype ({error})"
            ) from None

    def _notice_range(self, fake: Tensor, feed: TurnInputs) -> None:
        if feed.real_sample.is_complex():
            return
        low, high = (float(value) for value in feed.real_sample.aminmax())
        for function, (lowest, highest) in _RANGES.items():
            if _ends_in(fake, function) and not lowest - 0.01 <= low <= high <= highest + 0.01:
                notice(
                    f"{self.calls[Side.G]} ends in a {function.lower()}, in ({lowest}, {highest}), and "
                    f"{feed.sample_name!r} is from {low:.3g} to {high:.3g}: scale the data to that range, or remove it"
                )

    def _notice_hidden_state(self, side: Side, inputs: tuple[Tensor | None, ...]) -> None:
        tensors = [x for x in inputs if x is not None]
        before = [x.clone() for x in tensors]
        held = HeldState(self.nets[side])
        is_equal = repeats(lambda: CalledNetwork(module=self.nets[side])(*inputs), self.nets[side])
        names = held.changed(of_tensors=False)  # a network may hold the features of its last call
        if not all(map(torch.equal, tensors, before)):
            notice(f"{self.calls[side]} changes its input in place, which others read, too: use x * 2, not x *= 2")
        elif names or not is_equal:
            notice(
                f"{self.calls[side]} {f'changes {names}' if names else _READS_STATE}, which no checkpoint has, so a "
                "resumed run is not exact where its outputs depend on it; draw from torch's global generator, and "
                "register state as a buffer"
            )

    def _try_function(
        self, name: str, arguments: str, function: Callable[..., Tensor], logits: tuple[Tensor | None, ...]
    ) -> None:
        with reraise_as_config_error(f"loss: {name}({arguments})"):
            values = self._call_loss(name, function, (*logits, *(logits if self.game.loss.compares else ())))
        if not self._has_rows(values):
            raise ConfigError(
                f"loss: {name} returned {_description(values)} for {counted(self.real.rows.count, 'sample')}; return "
                "one value per sample, not a mean"
            )
        if not values.requires_grad:
            raise ConfigError(f"loss: {name} returned values without a gradient: is there a detach or a no_grad?")
        with reraise_as_config_error(f"model: the backward pass from {name}"):
            values.sum().backward(retain_graph=True)

    def _call_loss(self, name: str, function: Callable[..., Tensor], logits: tuple[Tensor | None, ...]) -> Tensor:
        """Call a function of the loss, and warn of what it changes."""
        values = function(*logits)
        held = HeldState(function)
        function(*logits)
        held.notice_changes(f"loss: {name}")
        return values

    def _call(self, side: Side, kind: Any, inputs: tuple[Tensor | None, ...]) -> Any:
        """Call a network, and note whether it draws. kind: of its output."""
        before = generator_states(self.game.prior.device)
        with reraise_as_config_error(self.calls[side]):
            output = kind.of(CalledNetwork(module=self.nets[side])(*inputs))
        if generator_states(self.game.prior.device) != before:
            self.drawing.add(side)
        return output

    def _has_rows(self, values: Any) -> bool:
        return isinstance(values, Tensor) and values.dim() > 0 and len(values) == self.real.rows.count


def _tensors(output: DiscriminatorOutput) -> list[Tensor]:
    """Return all tensors that D returned, of all discriminators."""
    members = output.by_name.values()
    values = [value for member in members for value in (member.logits_B, *member.layers, member.classes_BK)]
    return [value for value in values if value is not None]


def _description(value: Any) -> str:
    return f"a tensor of {tuple(value.shape)}" if isinstance(value, Tensor) else f"a {type(value).__name__}"


def _ends_in(values: Tensor, function: str) -> bool:
    """Return whether the last operation, besides changes of shape and format, is this function."""
    node = values.grad_fn
    while node is not None and node.name().startswith(_SHAPES):
        node = node.next_functions[0][0]
    return node is not None and node.name().startswith(f"{function}Backward")
