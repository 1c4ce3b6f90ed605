"""Whether gradients reach what they train: a network's weights, and G through D's logits; for a trial.

The checks of `notice_*` change the weights of the networks of a trial, so they come last. They call networks with
weights that no run has: what such a call raises is no problem of the user, and only a warning is lost.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

import torch
from torch import Tensor, nn

from paragan.core import rng
from paragan.core.errors import ConfigError
from paragan.core.outputs import DiscriminatorOutput, GeneratorOutput
from paragan.core.outside_code import reraise_as_config_error
from paragan.game.network import CalledNetwork
from paragan.layers.random import preserved_state

# what a network may raise for weights and values that no run has
REFUSALS = (ArithmeticError, AssertionError, ConfigError, LookupError, RuntimeError, TypeError, ValueError)
CallOf = Callable[[str], str]

_CUTS = "a detach, a no_grad, an argmax or a comparison"
_CONSTANTS = {
    0.0: "a log_softmax over one value, and a relu or rounding of values below 0.5",
    1.0: "a softmax over one value",
}


def check_trainable_output(call: str, net: nn.Module, values: Tensor, what: str) -> None:
    """Raise `ConfigError` for values of a network that are not finite, or train no weight; warn if their gradient is 0.

    call, what: of the network, and its outputs, for messages.
    """
    if not values.isfinite().all():
        raise ConfigError(f"{call} returned {what} that are not finite; check its initial weights and divisions")
    if not values.requires_grad:
        raise ConfigError(
            f"{call} returned {what} without a gradient, so its weights would not train: is there {_CUTS}? Remove it; "
            "one-hot values train by torch.nn.functional.gumbel_softmax(hard=True)"
        )
    weights = [weight for weight in net.parameters() if weight.requires_grad]
    gradients = [gradient for gradient in _gradients(values, *weights) if gradient is not None]
    if weights and not gradients:
        raise ConfigError(
            f"{call} returned {what} that do not depend on its weights, so these would not train: it may call another "
            "network, by an attribute such as a lambda; make that a method"
        )
    if weights and not any(gradient.any() for gradient in gradients):
        cause = _constant_text(values)
        notice(f"{call} returned {what} whose gradient is 0 for all of its weights, so that they do not train{cause}")


def flat_discriminators(output: DiscriminatorOutput, fake: Tensor, what: str, call_of: CallOf) -> list[str]:
    """Return the names of discriminators whose logits have the gradient 0 for their input, "" of one alone.

    output: of `fake`. what: name of that input. call_of: returns the call by name, for messages. Raises `ConfigError`
    where there is no gradient.
    """
    gradients = {name: _gradients(member.logits_B, fake)[0] for name, member in output.by_name.items()}
    for name, gradient in gradients.items():
        if gradient is None:
            raise ConfigError(
                f"{call_of(name)} returned logits that do not depend on {what}, or without a gradient for it, so G "
                f"would not train: let D read {what}, without {_CUTS}"
            )
    return [name for name, gradient in gradients.items() if gradient is not None and not gradient.any()]


def notice_flat_logits(net: nn.Module, inputs: Sequence[Tensor | None], names: list[str], call_of: CallOf) -> None:
    """Warn of discriminators whose logits have the gradient 0 for their first input with other weights, too.

    A last layer that begins at 0 has such a gradient, and it trains. names: of those whose gradient is 0 now, "" of
    one alone. call_of: returns the call by name, for the message. Changes the weights of `net`.
    """
    if not names:
        return
    with suppress(*REFUSALS):
        leaf, output = call_on_leaf(_shaken(net), inputs)
        for name in set(names).intersection(flat_discriminators(output, leaf, "its input", call_of)):
            if not _constant_text(output.by_name[name].logits_B):  # of which `check_trainable_output` warns
                notice(
                    f"{call_of(name)} returned logits whose gradient is 0 for the samples of G, so that G does not "
                    "train: does D round them, or compare them with something?"
                )


def notice_equal_logits(net: nn.Module, inputs: Sequence[Tensor | None], call_of: CallOf) -> None:
    """Warn of discriminators that return one number for a whole batch, as a mean over it that is expanded.

    inputs: of D. call_of: returns the call by name, for the message. Changes the weights of `net`.
    """
    with suppress(*REFUSALS):
        leaf, output = call_on_leaf(_shaken(net), inputs)  # a last layer that begins at 0 returns 0 for every sample
        if (leaf == leaf[:1]).all():  # equal samples have equal logits
            return
        for name, member in output.by_name.items():
            (gradient,) = _gradients(member.logits_B[:1], leaf)
            reads_others = gradient is not None and bool(gradient[1:].any())
            if reads_others and (member.logits_B == member.logits_B[:1]).all():
                notice(
                    f"{call_of(name)} returned the same logits for samples that differ: is there a mean over the "
                    "batch? Return a logit, or several, for each sample"
                )


def call_on_leaf(net: nn.Module, inputs: Sequence[Tensor | None]) -> tuple[Tensor, DiscriminatorOutput]:
    """Return the first input of D as a leaf that has gradients, and its output for it."""
    first, *conditions = inputs
    assert first is not None
    leaf = first.clone().requires_grad_()
    return leaf, DiscriminatorOutput.of(CalledNetwork(module=net)(leaf.clone(), *conditions))  # it may change the copy


def notice_ignored_inputs(net: nn.Module, inputs: Mapping[str, Tensor | None], call: str) -> None:
    """Warn of latents and conditions on which the values of G do not depend, also with other weights.

    inputs: of G by name, in order. call: of G, for the message. Changes the weights of `net`.
    """
    _shaken(net)
    tried = {name: x for name, x in inputs.items() if x is not None and x.is_floating_point()}
    leaves = {name: x.clone().requires_grad_() for name, x in tried.items()}
    copies = {name: x.clone() for name, x in leaves.items()}  # which G may change in place
    weights = [weight for weight in net.parameters() if weight.requires_grad]
    with suppress(*REFUSALS):
        images = GeneratorOutput.of(CalledNetwork(module=net)(*{**inputs, **copies}.values())).images
        if not any(gradient is not None and gradient.any() for gradient in _gradients(images, *weights)):
            return  # of rounded values, for example, whose gradient is 0 for all
        for name, leaf in leaves.items():
            (gradient,) = _gradients(images, leaf)
            if gradient is not None and gradient.any():
                continue
            # another sample, and mirrored: whatever is equal for both does not read this input
            others = {**inputs, name: leaf.detach().flip(-1).roll(1, 0)}
            if torch.equal(_images(net, inputs), _images(net, others)):  # an argmax of the input has no gradient
                notice(f"{call} returned values that do not depend on {name!r}: let G read it, or leave it out")


@torch.no_grad()
def _images(net: nn.Module, inputs: Mapping[str, Tensor | None]) -> Tensor:
    """Return what G makes of copies of inputs, with equal buffers and random numbers in every call."""
    inputs = {name: None if x is None else x.clone() for name, x in inputs.items()}
    with preserved_state(net), rng.seeded_globally(seed=0):
        return GeneratorOutput.of(CalledNetwork(module=net)(*inputs.values())).images


def _constant_text(values: Tensor) -> str:
    """Return what makes values equal, for a message; empty if they differ."""
    first = values.detach().flatten()[0]
    if not (values == first).all() or first.is_complex():
        return ""
    number = float(first) + 0.0  # no -0
    return f": all are {number:.3g}, as of {_CONSTANTS.get(number, 'a clamp whose range they exceed')}; remove that"


@torch.no_grad()
def _shaken(net: nn.Module) -> nn.Module:
    """Add noise to all weights of a network, and return it."""
    generator = torch.Generator().manual_seed(0)
    for weight in net.parameters():
        weight.add_(torch.randn(weight.shape, generator=generator).to(weight) / 10)
    return net


def _gradients(values: Tensor, *inputs: Tensor) -> tuple[Tensor | None, ...]:
    """Return the gradients of a sum of the values with random factors, since a softmax has a constant sum."""
    factors = torch.randn(values.shape, generator=torch.Generator().manual_seed(0)).to(values)
    total = (factors * values).sum()
    with reraise_as_config_error("model: the backward pass from its outputs"):
        return torch.autograd.grad(total.real, inputs, retain_graph=True, allow_unused=True)


def notice(text: str) -> None:
    """Warn of what a trial has found."""
    warnings.warn(text, stacklevel=3)
