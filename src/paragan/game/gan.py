"""The game: two player slots, a loss, penalties, a prior; makes turns and reports."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from torch import Tensor

from paragan.core.clock import Clock
from paragan.core.errors import ConfigError
from paragan.core.loss import Loss
from paragan.core.outputs import Outputs, identity, mean_per_sample
from paragan.core.protocols import Augment, Penalty, PlayerSlot, Turn, adaptive
from paragan.core.types import Batch, LossTerms, Report, Side, TurnInputs, Update
from paragan.game.prior import Prior


@dataclass
class GAN:
    """Two player slots, local or remote, with their loss, penalties, prior and clock.

    total: sums over the ranks that share the batch.
    """

    g: PlayerSlot
    d: PlayerSlot
    loss: Loss
    prior: Prior
    g_penalties: tuple[Penalty, ...] = ()
    d_penalties: tuple[Penalty, ...] = ()
    augment: Augment | None = None
    clock: Clock = field(default_factory=Clock)
    total: Callable[[Tensor], Tensor] = identity

    def __post_init__(self) -> None:
        for side, penalties in ((Side.G, self.g_penalties), (Side.D, self.d_penalties)):
            if not isinstance(penalties, tuple):
                problem = f"{side.value}: penalties must be a tuple, not {type(penalties).__name__}"
                raise ConfigError(f"{problem}; write (penalty,)")
            for penalty in penalties:
                if not isinstance(penalty, Penalty):
                    problem = f"{side.value}: {type(penalty).__name__} is not a penalty"
                    raise ConfigError(f"{problem}; derive it from paragan.Penalty")
            names = ["adversarial", *(penalty.name for penalty in penalties)]
            if (twice := next((name for name in names if names.count(name) > 1), None)) is not None:
                raise ConfigError(
                    f"{side.value}: two losses are called {twice!r}, but names must be unique; "
                    "leave one out, or set the other side for one of the penalties"
                )

    @property
    def missing_label_penalties(self) -> dict[Side, tuple[str, ...]]:
        """Penalties that would train D's label head, by side that has none; empty without head."""
        net = getattr(self.d, "net", None)  # None if D is on other ranks
        modules = () if net is None else net.modules()
        heads = (getattr(module, "trained_by", None) for module in modules)
        trained_by = next(filter(None, heads), ())
        if not trained_by:
            return {}
        penalties = {Side.G: self.g_penalties, Side.D: self.d_penalties}
        by_side = {side: {one.name for one in of_side} for side, of_side in penalties.items()}
        return {side: trained_by for side, names in by_side.items() if not names & set(trained_by)}

    @property
    def g_needs_real(self) -> bool:
        """Whether G's turn also runs D on real samples."""
        return self.loss.g_needs_real or any(penalty.needs_real for penalty in self.g_penalties)

    def d_turn(self, real: Batch) -> Turn:
        """Return a turn of D on real samples and the opponent's fakes, which get no gradient."""
        feed = self.prior.feed("d", real)
        penalties = _due(self.d_penalties, self.d.version)
        return Turn(Side.D, (Side.D,), feed, self._d_objective, penalties, augment=self.augment)

    def g_turn(self, real: Batch) -> Turn:
        """Return a turn of G through a frozen D."""
        feed = self.prior.feed("g", real)
        penalties = _due(self.g_penalties, self.g.version)
        chain = (Side.G, Side.D)
        return Turn(Side.G, chain, feed, self._g_objective, penalties, self.g_needs_real, self.augment)

    def observe(self, d: Update, g: Update) -> Report:
        """End a step: advance the clock by D's real images, and return the report."""
        return self.report(d.rows.total, {Side.D: d, Side.G: g})

    def report(self, images: int, updates: Mapping[Side, Update]) -> Report:
        """End a step with these updates. images: real ones of one update of D, over all ranks."""
        num_real = images * self.d.updates_per_step
        self.clock.advance(num_real)
        scalars: dict[str, Tensor] = {}
        for side, update in updates.items():
            scalars |= {f"{side.value}/{name}": value for name, value in update.scalars.items()}
        if (adapts := adaptive(self.augment)) is not None and (d := updates.get(Side.D)) is not None:
            values = adapts.observe(d.scalars["sign"], num_real, self.total)
            share = d.rows.count / d.rows.total
            scalars |= {f"d/augment_{name}": value * share for name, value in values.items()}
        return Report(self.clock.step, self.clock.images, scalars)

    def _d_objective(self, outputs: Outputs, feed: TurnInputs) -> LossTerms:
        assert outputs.real is not None
        real = outputs.real.logits_B
        fake = outputs.fake.logits_B
        observations = {"real": mean_per_sample(real.detach()), "fake": mean_per_sample(fake.detach())}
        if adaptive(self.augment) is not None:
            # The sum is NaN for NaN logits.
            observations["sign"] = observations["real"].sign() + 0 * observations["real"]
        loss_B = self._adversarial(self.loss.d, outputs, real, fake)
        return LossTerms({"adversarial": loss_B}, observations_B=observations)

    def _g_objective(self, outputs: Outputs, feed: TurnInputs) -> LossTerms:
        real = None if outputs.real is None else outputs.real.logits_B
        loss_B = self._adversarial(self.loss.g, outputs, outputs.fake.logits_B, real)
        return LossTerms({"adversarial": loss_B})

    def _adversarial(self, function: Callable[..., Tensor], outputs: Outputs, *logits: Tensor | None) -> Tensor:
        """Return one of the two losses per sample, of the logits of this micro-batch."""
        of_all_ranks = [None if x is None else outputs.whole(x) for x in logits] if self.loss.compares else ()
        return mean_per_sample(function(*logits, *of_all_ranks))


def _due(penalties: tuple[Penalty, ...], version: int) -> tuple[Penalty, ...]:
    return tuple(p for p in penalties if version % p.interval == 0)
