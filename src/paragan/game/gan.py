"""The game: player slots, a loss, penalties, a prior; makes turns and reports."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from torch import Tensor

from paragan.core import rng
from paragan.core.balancer import Balancer
from paragan.core.errors import ConfigError
from paragan.core.outputs import Outputs, identity
from paragan.core.protocols import Augment, Loss, Penalty, PlayerSlot, Turn, adaptive
from paragan.core.types import Batch, Clock, LossTerms, Report, Rows, Side, TurnInputs, Update
from paragan.core.weight_schedule import has_begun
from paragan.game.loss_terms import adversarial_terms, mean_logits, varying_weights
from paragan.game.options import AdversarialOptions
from paragan.game.player import Player
from paragan.game.prior import Prior
from paragan.game.term_checks import begin_balancer, check_penalties
from paragan.game.term_state import TermState

Objective = Callable[[Outputs, TurnInputs], LossTerms]


@dataclass(kw_only=True)
class GAN:
    """Player slots, local or remote, with their loss, penalties, prior and clock.

    sum_over_ranks: of a tensor, over those that share the batch. balancer: weighs the terms of G's loss. extra:
    players other than G and D, whose losses are their penalties, in the order of their updates.
    """

    g: PlayerSlot
    d: PlayerSlot
    loss: Loss
    prior: Prior
    g_penalties: tuple[Penalty, ...] = ()
    d_penalties: tuple[Penalty, ...] = ()
    augment: Augment | None = None
    clock: Clock = field(default_factory=Clock)
    sum_over_ranks: Callable[[Tensor], Tensor] = identity
    adversarial: AdversarialOptions = AdversarialOptions()
    balancer: Balancer | None = None
    extra: Mapping[Side, PlayerSlot] = field(default_factory=dict)
    extra_penalties: Mapping[Side, tuple[Penalty, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for side, penalties in self.penalties.items():
            check_penalties(side, penalties, {slot.value for slot in self.slots} - {side.value})
        if not self.g_penalties and not self.adversarial.g_weight(Rows(step=0, first=0, count=1, total=1)):
            raise ConfigError(
                "adversarial: G has no loss at the first batch, because its adversarial loss begins later or has "
                "the weight 0; add a penalty of G, or set adversarial.start_kimg to 0"
            )
        if self.balancer is not None:
            begin_balancer(self.balancer, self.g, self.g_penalties)
        self._attach_state()

    def _attach_state(self) -> None:
        """Attach the state of terms to the players, on their devices, before the first step.

        The augmentation of D's inputs is saved with D, the balancer with G.
        """
        others = {Side.G: self.balancer, Side.D: adaptive(self.augment)}
        for side, player in self.slots.items():
            if isinstance(player, Player):
                device = player.strategy.device(player.net)
                other = others.get(side)
                owners = self.penalties[side] if other is None else (*self.penalties[side], other)
                player.state = TermState(side.value, owners, device)

    @property
    def penalties(self) -> dict[Side, tuple[Penalty, ...]]:
        """Penalties by side."""
        extra = {side: self.extra_penalties.get(side, ()) for side in self.extra}
        return {Side.G: self.g_penalties, Side.D: self.d_penalties, **extra}

    @property
    def critics(self) -> dict[Side, PlayerSlot]:
        """All players but G, in the order of their updates."""
        return {Side.D: self.d, **self.extra}

    @property
    def slots(self) -> dict[Side, PlayerSlot]:
        """All players by side."""
        return {Side.G: self.g, **self.critics}

    def called_by(self, side: Side) -> dict[Side, None]:
        """Return the other players whose networks a player's turns call, in order."""
        names = [name for penalty in self.penalties[side] for name in penalty.players]
        return dict.fromkeys((Side.D if side is Side.G else Side.G, *map(Side, names)))

    @property
    def batches_per_step(self) -> int:
        """Batches of a step: one for each update of the player, other than G, with the most."""
        return max(player.updates_per_step for player in self.critics.values())

    def critics_of_batch(self, number: int) -> dict[Side, PlayerSlot]:
        """Return the players but G that are updated on a batch of the step, numbered from 0.

        One with fewer updates than others uses the last batches, so that all of them end the step on G's batch.
        """
        left = self.batches_per_step - number
        return {side: player for side, player in self.critics.items() if player.updates_per_step >= left}

    @property
    def d_pauses(self) -> str:
        """The setting by which some turns of D are not due; empty if all are."""
        if self.adversarial.d_start_kimg:
            return "adversarial.d_start_kimg"
        return "d.update_probability" if self.d.update_probability < 1 else ""

    @property
    def d_has_begun(self) -> bool:
        """Whether D has begun to train."""
        # by its updates: the clock leaves out batches of steps without a turn of D, and the start counts them
        return self.adversarial.d_start_kimg == 0 or self.d.version > 0

    @property
    def missing_label_penalties(self) -> dict[Side, tuple[str, ...]]:
        """Penalties that would train D's label head, by side that has none; empty without head."""
        net = getattr(self.d, "net", None)  # None if D is on other ranks
        heads = [] if net is None else [module for module in net.modules() if hasattr(module, "trained_by")]
        if not heads:
            return {}
        trained_by = heads[0].trained_by  # names of penalties, of which one is enough (`models`)
        by_side = {side: {penalty.name for penalty in self.penalties[side]} for side in Side}
        return {side: trained_by for side, names in by_side.items() if not names & set(trained_by)}

    @property
    def g_needs_real(self) -> bool:
        """Whether G's turn also runs D on real samples."""
        return self.loss.g_needs_real or any(penalty.needs_real for penalty in self.g_penalties)

    def turn(self, side: Side, real: Batch) -> Turn:
        """Return a turn of a player; that of an extra one has its penalties as loss, on G's images."""
        if side.is_extra:
            return self._turn(side, (), real, _no_terms)
        return self.g_turn(real) if side is Side.G else self.d_turn(real)

    def _turn(self, side: Side, chain: tuple[Side, ...], real: Batch, objective: Objective) -> Turn:
        """Return a turn with the penalties that are due now, and the players that these call."""
        slots = self.slots
        version = slots[side].version
        penalties = self.penalties[side]
        due = tuple(penalty for penalty in penalties if penalty.is_due(version, real.rows))
        return Turn(
            side=side,
            chain=chain,
            feed=self.prior.feed(side.value, real),
            objective=objective,
            penalties=due,
            needs_real=side is Side.D or (side is Side.G and self.g_needs_real),
            augment=None if side.is_extra else self.augment,
            is_due=bool(due) or not side.is_extra,
            balancer=self.balancer if side is Side.G else None,
            absent=tuple(penalty for penalty in penalties if penalty not in due),
            players={Side(name): slots[Side(name)] for penalty in due for name in penalty.players},
        )

    def d_turn(self, real: Batch) -> Turn:
        """Return a turn of D on real samples and the opponent's fakes, which get no gradient."""
        if not has_begun(self.adversarial.d_start_kimg, real.rows) or not self._d_is_drawn(real.rows):
            feed = TurnInputs(rows=real.rows, seed=self.prior.seed)
            return Turn(side=Side.D, chain=(Side.D,), feed=feed, objective=self._d_objective, is_due=False)
        return self._turn(Side.D, (Side.D,), real, self._d_objective)

    def g_turn(self, real: Batch) -> Turn:
        """Return a turn of G through a frozen D; of G alone, or of no network, if nothing reads the others' outputs."""
        turn = self._turn(Side.G, (Side.G, Side.D), real, self._g_objective)
        if self.adversarial.g_weight(real.rows):
            return turn
        due = turn.penalties
        needs_real = any(penalty.needs_real for penalty in due)
        chain: tuple[Side, ...] = ()
        if needs_real or any(penalty.uses_discriminator for penalty in due):
            chain = turn.chain
        elif self.balancer is not None or any(penalty.uses_outputs for penalty in due):
            chain = (Side.G,)
        return replace(turn, chain=chain, objective=_no_terms, needs_real=needs_real, is_due=bool(due))

    def observe(self, d: Update, g: Update) -> Report:
        """End a step: advance the clock by D's real images, and return the report."""
        return self.report(d.rows.total, {Side.D: d, Side.G: g})

    def report(self, images: int, updates: Mapping[Side, Update]) -> Report:
        """End a step with these updates. images: real ones of one batch, over all ranks."""
        self.clock.advance(images * self.batches_per_step)
        scalars: dict[str, Tensor] = {}
        weights: dict[str, float] = {}
        for side, update in updates.items():
            scalars |= {f"{side.value}/{name}": value for name, value in update.scalars.items()}
            weights |= varying_weights(side, self.adversarial, self.penalties[side], update.rows)
        if updates:
            scalars |= self._observe_augment(images * self.d.updates_per_step, updates)
        return Report(self.clock.step, self.clock.images, scalars, weights)

    def _observe_augment(self, images: int, updates: Mapping[Side, Update]) -> Mapping[str, Tensor]:
        """Adapt the augmentation, if it does, and return its numbers."""
        augment = adaptive(self.augment)
        if augment is None:
            return {}
        # None if D was not updated: nothing adapts, but G's turn was augmented, so the numbers are recorded
        signs = updates[Side.D].scalars.get("sign") if Side.D in updates else None
        if signs is not None:  # NaN, which is not counted, if the update was skipped for its gradient norm
            signs = signs + 0 * updates[Side.D].scalars["gradient_norm"]
        rows = next(iter(updates.values())).rows
        share = rows.count / rows.total  # equal on all ranks, whose scalars are summed
        values = augment.observe(signs, images, self.sum_over_ranks)
        return {f"d/augment_{name}": value * share for name, value in values.items()}

    def _d_is_drawn(self, rows: Rows) -> bool:
        """Return whether D is updated at a batch, by a draw that is equal on all ranks."""
        probability = self.d.update_probability
        return probability >= 1 or rng.fraction(self.prior.seed, "d/update", rows.step) < probability

    def _d_objective(self, outputs: Outputs, feed: TurnInputs) -> LossTerms:
        assert outputs.real is not None
        observations = mean_logits("real", outputs.real) | mean_logits("fake", outputs.fake)
        if adaptive(self.augment) is not None:
            # the second term is NaN for logits that are not finite, which ADA must not count; their sign is a number
            observations["sign"] = observations["real"].sign() + 0 * observations["real"]
        loss = self.loss
        terms = adversarial_terms(loss.d, loss.compares, self.adversarial, outputs, outputs.real, outputs.fake)
        return LossTerms(terms.loss_B, {**observations, **terms.observations_B})

    def _g_objective(self, outputs: Outputs, feed: TurnInputs) -> LossTerms:
        loss = self.loss
        terms = adversarial_terms(loss.g, loss.compares, self.adversarial, outputs, outputs.fake, outputs.real)
        weight = self.adversarial.g_weight(feed.rows)
        if weight == 1:
            return terms
        weighted = {name: weight * loss_B for name, loss_B in terms.loss_B.items()}
        return replace(terms, loss_B=weighted, weights=dict.fromkeys(weighted, weight))


def _no_terms(outputs: Outputs, feed: TurnInputs) -> LossTerms:
    return LossTerms({})
