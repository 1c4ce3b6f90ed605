"""Adversarial losses of one or several discriminators, and the weights of terms that change in a run."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from torch import Tensor

from paragan.core.outputs import DiscriminatorOutput, Outputs, discriminator_weights, mean_per_sample, sum_of
from paragan.core.protocols import Penalty
from paragan.core.types import LossTerms, Rows, Side, player_label
from paragan.core.weight_schedule import WeightSchedule, weight_at
from paragan.game.options import AdversarialOptions


def adversarial_terms(
    function: Callable[..., Tensor],
    compares: bool,
    options: AdversarialOptions,
    outputs: Outputs,
    *judged: DiscriminatorOutput | None,
) -> LossTerms:
    """Return the total loss per sample, and that of each of several discriminators as observation.

    function, compares: of the `Loss`. outputs: gather the rows of all ranks. judged: the arguments of `function`. A
    discriminator's loss is averaged over its logits per sample first, so that their number is no weight.
    """
    first = judged[0]
    assert first is not None
    names = first.by_name
    losses: dict[str, Tensor] = {}
    for name in names:
        logits = [None if output is None else output.by_name[name].logits_B for output in judged]
        if compares:
            logits += [None if x is None else outputs.whole(x) for x in logits]
        losses[name] = mean_per_sample(function(*logits))
    if not (first.members or options.weights):
        return LossTerms({"adversarial": losses[""]})
    factors = discriminator_weights(names, options.combine, options.weights, "adversarial.weights")
    total_B = sum_of([factor * losses[name] for name, factor in factors.items()])
    observations = {f"loss/adversarial/{name}": loss.detach() for name, loss in losses.items()}
    return LossTerms({"adversarial": total_B}, observations)


def mean_logits(kind: str, output: DiscriminatorOutput) -> dict[str, Tensor]:
    """Return the mean logit per sample under `kind`, and of several discriminators under theirs."""
    means = {kind: mean_per_sample(output.logits_B.detach())}
    for name, member in output.members.items():
        means[f"{kind}/{name}"] = mean_per_sample(member.logits_B.detach())
    return means


def varying_weights(
    side: Side, adversarial: AdversarialOptions, penalties: Sequence[Penalty], rows: Rows
) -> dict[str, float]:
    """Return the weights of one side's scheduled terms for a batch, as `SIDE/weight/NAME`."""
    weights = {}
    if side is Side.G and adversarial.g_weight_varies:
        weights["g/weight/adversarial"] = adversarial.g_weight(rows)
    for penalty in penalties:
        if isinstance(penalty.weight, WeightSchedule):
            weights[f"{side.value}/weight/{penalty.name}"] = weight_at(penalty.weight, rows)
    return weights


def schedule_texts(adversarial: AdversarialOptions, penalties: Mapping[Side, Sequence[Penalty]]) -> Iterator[str]:
    """Yield a line for each term, or player, that does not act equally from the first batch on."""
    if adversarial.d_start_kimg:
        yield f"D trains from {adversarial.d_start_kimg:g} kimg on"
    if adversarial.start_kimg:
        yield f"G: the adversarial loss begins at {adversarial.start_kimg:g} kimg"
    if isinstance(adversarial.weight, WeightSchedule):
        yield f"G: weight of the adversarial loss: {adversarial.weight}"
    for side, terms in penalties.items():
        for term in terms:
            if isinstance(term.weight, WeightSchedule):
                yield f"{player_label(side.value)}: weight of {term.name}: {term.weight}"
