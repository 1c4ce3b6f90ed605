"""Adversarial losses of one or several discriminators."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from paragan.core.outputs import DiscriminatorOutput, Outputs, discriminator_weights, mean_per_sample, sum_of
from paragan.core.types import LossTerms
from paragan.game.options import AdversarialOptions


def adversarial_terms(
    function: Callable[..., Tensor],
    compares: bool,
    options: AdversarialOptions,
    outputs: Outputs,
    *judged: DiscriminatorOutput | None,
) -> LossTerms:
    """Return the total loss per sample, and that of each of several discriminators as observation.

    function, compares: of the `Loss`. outputs: gather the rows of all ranks. judged: the arguments
    of `function`. A discriminator's loss is averaged over its logits per sample first, so that
    their number is no weight.
    """
    first = judged[0]
    assert first is not None
    names = first.by_name
    factors = discriminator_weights(names, options.combine, options.weights, "adversarial.weights")
    losses: dict[str, Tensor] = {}
    for name in names:
        logits = [None if one is None else one.by_name[name].logits_B for one in judged]
        of_all_ranks = [None if x is None else outputs.whole(x) for x in logits] if compares else ()
        losses[name] = mean_per_sample(function(*logits, *of_all_ranks))
    if not first.members:
        return LossTerms({"adversarial": losses[""]})
    total_B = sum_of([factor * losses[name] for name, factor in factors.items()])
    observations = {f"loss/adversarial/{name}": loss.detach() for name, loss in losses.items()}
    return LossTerms({"adversarial": total_B}, observations)


def mean_logits(kind: str, output: DiscriminatorOutput) -> dict[str, Tensor]:
    """Return the mean logit per sample under `kind`, and of several discriminators under theirs."""
    found = {kind: mean_per_sample(output.logits_B.detach())}
    for name, member in output.members.items():
        found[f"{kind}/{name}"] = mean_per_sample(member.logits_B.detach())
    return found
