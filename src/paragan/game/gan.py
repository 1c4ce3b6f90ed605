"""The game: two seats, a loss, penalties, a prior. It turns real batches into turns and updates into reports."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from torch import Tensor

from paragan.core.clock import Clock
from paragan.core.errors import ConfigError
from paragan.core.protocols import Augment, Penalty, PlayerSlot, Turn, adaptive
from paragan.core.types import Batch, Can, LossTerms, Outputs, Report, Side, TurnInputs, Update, identity
from paragan.game.prior import Prior


@dataclass(frozen=True)
class Loss:
    """An adversarial loss as a pair of pure functions, elementwise per sample (`losses/`).

    compares: it is not; then both are also given, in the same order, the logits of the whole batch.
    """

    d: Callable[..., Tensor]  # (real, fake)
    g: Callable[..., Tensor]  # (fake, real)
    g_needs_real: bool = False
    compares: bool = False

    @property
    def needs(self) -> frozenset[Can]:
        """Abilities that the strategies of both players must have."""
        return frozenset({Can.COUPLED}) if self.compares else frozenset()


@dataclass
class GAN:
    """Both seats may be the same process, other ranks, snapshots; the game does not know.

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
                raise ConfigError(
                    f"{side.value}: found {type(penalties).__name__}, expected a tuple of penalties: (a,)"
                )
            for penalty in penalties:
                if not isinstance(penalty, Penalty):
                    raise ConfigError(
                        f"{side.value}: {type(penalty).__name__} is not a penalty; derive it from paragan.Penalty"
                    )
            names = ["adversarial", *(penalty.name for penalty in penalties)]
            if (twice := next((name for name in names if names.count(name) > 1), None)) is not None:
                raise ConfigError(
                    f"{side.value}: found two losses called {twice!r}, expected a name of its own for each: leave "
                    "one out, or give one of two penalties the other side"
                )

    @property
    def missing_label_penalties(self) -> dict[Side, tuple[str, ...]]:
        """Sides that no penalty teaches what labels mean, though D has a head for that alone; the names of such."""
        net = getattr(self.d, "net", None)  # of a player that is here
        heads = () if net is None else net.modules()
        taught = next((found for head in heads if (found := getattr(head, "trained_by", None))), ())
        sides = {Side.G: self.g_penalties, Side.D: self.d_penalties}
        return {side: taught for side, own in sides.items() if taught and not {p.name for p in own} & set(taught)}

    @property
    def g_needs_real(self) -> bool:
        """Whether G's turn looks at D's verdict on real samples."""
        return self.loss.g_needs_real or any(penalty.needs_real for penalty in self.g_penalties)

    def d_turn(self, real: Batch) -> Turn:
        """D against fakes of the opponent: no graph into it."""
        feed = self.prior.feed("d", real)
        penalties = _due(self.d_penalties, self.d.version)
        return Turn(Side.D, (Side.D,), feed, self._d_objective, penalties, augment=self.augment)

    def g_turn(self, real: Batch) -> Turn:
        """G through a frozen D."""
        feed = self.prior.feed("g", real)
        penalties = _due(self.g_penalties, self.g.version)
        chain = (Side.G, Side.D)
        return Turn(Side.G, chain, feed, self._g_objective, penalties, self.g_needs_real, self.augment)

    def observe(self, d: Update, g: Update) -> Report:
        """Close the step: advance the clock by the real images that D saw, and hold the numbers."""
        return self.report(d.rows.total, {Side.D: d, Side.G: g})

    def report(self, images: int, updates: Mapping[Side, Update]) -> Report:
        """The same where not every update is known here. images: real ones of one update of D, over all ranks."""
        shown = images * self.d.updates_per_step
        self.clock.advance(shown)
        seen = {f"{side.value}/{k}": v for side, update in updates.items() for k, v in update.scalars.items()}
        if (adapts := adaptive(self.augment)) is not None and (d := updates.get(Side.D)) is not None:
            told = adapts.observe(d.scalars["sign"], shown, self.total)
            seen |= {f"d/augment_{name}": value * (d.rows.count / d.rows.total) for name, value in told.items()}
        return Report(self.clock.step, self.clock.images, seen)

    def _d_objective(self, outputs: Outputs, feed: TurnInputs) -> LossTerms:
        assert outputs.real is not None
        real, fake = outputs.real.logits_B, outputs.fake.logits_B
        seen = {"real": _per_sample(real.detach()), "fake": _per_sample(fake.detach())}
        if adaptive(self.augment) is not None:
            seen["sign"] = seen["real"].sign() + 0 * seen["real"]  # NaN has none
        return LossTerms({"adversarial": self._adversarial(self.loss.d, outputs, real, fake)}, observations_B=seen)

    def _g_objective(self, outputs: Outputs, feed: TurnInputs) -> LossTerms:
        real = None if outputs.real is None else outputs.real.logits_B
        return LossTerms({"adversarial": self._adversarial(self.loss.g, outputs, outputs.fake.logits_B, real)})

    def _adversarial(self, function: Callable[..., Tensor], outputs: Outputs, *logits: Tensor | None) -> Tensor:
        """One of the pair, of the logits that are here."""
        everyone = [None if x is None else outputs.whole(x) for x in logits] if self.loss.compares else ()
        return _per_sample(function(*logits, *everyone))


def _due(penalties: tuple[Penalty, ...], version: int) -> tuple[Penalty, ...]:
    return tuple(p for p in penalties if version % p.interval == 0)


def _per_sample(values: Tensor) -> Tensor:
    return values.flatten(1).mean(1) if values.dim() > 1 else values
