"""Weights of loss terms that change in a run, for its record and its messages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from paragan.core.protocols import Penalty
from paragan.core.types import Rows, Side
from paragan.core.weight_schedule import WeightSchedule, weight_at
from paragan.game.options import AdversarialOptions


def varying_weights(
    side: Side, adversarial: AdversarialOptions, penalties: Sequence[Penalty], rows: Rows
) -> dict[str, float]:
    """Return the weights of one side's scheduled terms for a batch, as `SIDE/weight/NAME`."""
    found = {}
    if side is Side.G and adversarial.g_weight_varies:
        found["g/weight/adversarial"] = adversarial.g_weight(rows)
    for penalty in penalties:
        if isinstance(penalty.weight, WeightSchedule):
            found[f"{side.value}/weight/{penalty.name}"] = weight_at(penalty.weight, rows)
    return found


def schedule_texts(adversarial: AdversarialOptions, penalties: Mapping[Side, Sequence[Penalty]]) -> Iterator[str]:
    """Yield a line for each term, or player, that does not act equally from the first batch on."""
    if adversarial.d_start_kimg:
        yield f"d: trains from {adversarial.d_start_kimg:g} kimg"
    if adversarial.start_kimg:
        yield f"g: the adversarial loss acts from {adversarial.start_kimg:g} kimg"
    if isinstance(adversarial.weight, WeightSchedule):
        yield f"g: weight of the adversarial loss: {adversarial.weight}"
    for side, terms in penalties.items():
        for term in terms:
            if isinstance(term.weight, WeightSchedule):
                yield f"{side.value}: weight of {term.name}: {term.weight}"
