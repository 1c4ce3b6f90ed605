"""G's and D's part of a step in which both train at the same time, and the messages between them.

S is the staleness, k D's updates per step. G's update number t trains against a D of at least k
(t + 1 - S) updates; D's step t trains on fakes of a G of at least t; the player that is ahead waits.
With S = 0 G waits for the D that its fakes have trained. Exploding gradients of a player set S to 0
for both. D sends its state after every step; at a pause (`quiesce`) exactly.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from paragan.core.dist import ALONE, World
from paragan.core.errors import RankError
from paragan.core.fakes import detached_fakes
from paragan.core.protocols import Turn
from paragan.core.skipped_state import copy_state, restore_if_skipped
from paragan.core.types import Batch, Rows, Side, TurnInputs, Update
from paragan.distributed.links.link import Message, ReceiveEnd, SendEnd
from paragan.game.buffer import Buffer
from paragan.game.gan import GAN
from paragan.game.policy import FollowsPolicy
from paragan.game.snapshot import PredictedOpponent, Snapshot, StateEncoder
from paragan.game.turn_context import seeded_layers
from paragan.schemes.asynchronous.fakes import (
    FakesReceiver,
    FakesSender,
    RemoteGenerator,
    judged_tensors,
    with_received,
)
from paragan.schemes.asynchronous.player_step import DIFFERENCE, PlayerStep, StalenessLimit


class GeneratorStep(PlayerStep):
    """G's part of a step.

    opponent: newest D received. fakes: sent to the ranks of D. states: received from one of them. world: ranks of G.
    """

    side = Side.G

    def __init__(
        self,
        gan: GAN,
        opponent: Snapshot,
        fakes: FakesSender,
        states: ReceiveEnd,
        limits: StalenessLimit,
        world: World = ALONE,
    ) -> None:
        super().__init__(gan, limits)
        self.world = world
        self.opponent = opponent
        factor = limits.options.predict
        self.predicted = PredictedOpponent(opponent, factor, limits.k) if factor and self.staleness else None
        self.fakes = fakes
        self.states = states

    def step(self, reals: Sequence[Batch]) -> Update:
        """Run G's turn. reals: batches of D's updates of this step, as the ranks of G share them."""
        send_fakes = self._send_g_fakes if self.limits.options.reuse else self._send_d_fakes
        # A turn of G of images reads no real ones; on its own ranks there are none.
        batches = reals if self.gan.prior.reads_batches else [Batch(real.rows) for real in reals]
        turn = send_fakes(batches)
        next_step = self.player.version + 1
        # A repetition waits for exactly the D of the record. A run takes the newest D that has arrived,
        # but waits for one that is at most `staleness` steps late.
        recorded = self.recorded
        required = self.limits.k * max(0, next_step - self.staleness) if recorded is None else recorded
        self._wait_for_version(required, drain=recorded is None)
        if recorded not in (None, self.opponent.version):
            raise RankError(
                f"scheme.order: D is at update {self.opponent.version}, but the record has update {recorded}; start "
                "the run anew"
            )
        lag = max(0, next_step - self.opponent.version // self.limits.k)
        self.log.lags[lag] += 1
        self.log.used.append(self.opponent.version)
        predicted = self.predicted if lag else None  # a D that is not late needs no prediction
        update = self.player.update(turn, against=predicted or self.opponent)
        self.check_gradients(update)
        return update

    def wait_for_d(self, step: int) -> None:
        """Wait until D has made that many steps and has sent its exact state."""
        self._wait_for_version(self.limits.k * step, needs_exact=True)
        self.forget_change()

    def forget_change(self) -> None:
        """Predict D from changes after a pause only, as a run does that resumes there."""
        if self.predicted is not None:
            self.predicted.reset()

    def _send_g_fakes(self, batches: Sequence[Batch]) -> Turn:
        """Send the fakes of G's turn, and return that turn."""
        turn = self.gan.g_turn(self._g_batch(batches[-1]))
        fakes = self.player.generate_fakes(turn)
        self._send(turn.feed, fakes)
        return turn.with_fakes(fakes)

    def _send_d_fakes(self, batches: Sequence[Batch]) -> Turn:
        """Send fakes that are generated for D's turns, and return G's turn."""
        generator = self.player.network()
        d = self.gan.d
        assert isinstance(d, FollowsPolicy)  # also where it is on other ranks
        for batch in batches:
            turn = self.gan.d_turn(batch)
            with seeded_layers(turn, self.player.version, generator):
                # no update follows that would restore statistics of a forward whose images are not finite
                before = copy_state(generator.buffers)
                fakes = detached_fakes(turn, generator, d.policy.micro_batches)
                if before:
                    restore_if_skipped(before, torch.stack([images.isfinite().all() for images in fakes]).all())
            self._send(turn.feed, fakes)
        return self.gan.g_turn(self._g_batch(batches[-1]))

    def _send(self, feed: TurnInputs, fakes: tuple[Tensor, ...]) -> None:
        tensors = judged_tensors(self.gan, feed, feed.in_order(fakes))
        self.fakes.send(feed.rows, tensors, self.player.version, self.note)

    def _g_batch(self, batch: Batch) -> Batch:
        """Return this rank's share of G's batch, which may differ in size from D's."""
        total = self.limits.options.g_batch
        if total is None:
            return batch
        first, count = self.world.share(total)
        return Batch(Rows(step=batch.rows.step, first=first, count=count, total=total))

    def _wait_for_version(self, version: int, drain: bool = True, needs_exact: bool = False) -> None:
        def has_arrived() -> bool:
            return self.opponent.version >= version and (self.opponent.is_exact or not needs_exact)

        self.wait("D", self.states.receive, self._load_state, has_arrived, drain)

    def _load_state(self, message: Message) -> None:
        self.read_note(message.note, message.version)
        opponent = self.predicted or self.opponent
        opponent.update(message.data, message.version, bool(message.note & DIFFERENCE))


class DiscriminatorStep(PlayerStep):
    """D's part of a step.

    fakes: from the ranks of G. states: sent to the ranks of G that this rank serves. in_process: messages stay on
    their device, not on the host.
    """

    side = Side.D

    def __init__(
        self,
        gan: GAN,
        fakes: FakesReceiver,
        states: Sequence[SendEnd],
        limits: StalenessLimit,
        in_process: bool = False,
    ) -> None:
        super().__init__(gan, limits)
        self.buffer = Buffer(gan.prior.seed, limits.options.cached)
        self.fakes = fakes
        self.states = states
        self.in_process = in_process
        self._encoder = StateEncoder(limits.options.state_dtype == "bf16")
        self._published: tuple[int, bool] | None = None  # newest version sent, and whether exactly
        self._num_received = 0

    def step(self, reals: Sequence[Batch]) -> Update:
        """Run D's turns, one for each batch, then send its state."""
        d = self.player
        step = d.version // self.limits.k
        for real in reals:
            self._wait_for_fakes(step)
            drawn = self.buffer.draw(real.rows.count, real.rows.step)
            self.log.lags.update(max(0, step - version) for version in drawn.versions)
            self.log.used.append(self._num_received)
            device = d.strategy.device(d.net)
            turn = with_received(self.gan.d_turn(real), {name: t.to(device) for name, t in drawn.tensors.items()})
            update = d.update(turn, against=RemoteGenerator(max(drawn.versions)))
            self.check_gradients(update)
        self.publish()
        return update

    def publish(self, is_exact: bool = False) -> None:
        """Send D's current state. Collective: every rank of D must call this (sharded weights)."""
        d = self.player
        # every state, also if another is under way: a difference is valid only after the one before
        data, is_difference = self._encoder.encode(d.strategy.weights(d.net), is_exact)
        note = self.note | (DIFFERENCE if is_difference else 0)
        data = data if self.in_process else data.cpu()
        for sender in self.states:
            sender.send(Message(version=d.version, data=data, note=note))
        self._published = d.version, not is_difference

    def publish_exactly(self) -> None:
        """Send D's current state, unless its exact state was the last message. Collective."""
        if self._published != (self.player.version, True):
            self.publish(is_exact=True)

    def _wait_for_fakes(self, step: int) -> None:
        """Receive fakes until there are those of G before this step; without reuse, until this turn's."""
        before = self._num_received
        recorded = self.recorded

        def has_arrived() -> bool:
            if recorded is not None:
                return self._num_received >= recorded
            if not self.limits.options.reuse:
                return self._num_received > before
            return self.buffer.newest is not None and self.buffer.newest >= step

        # without reuse each delivery belongs to one turn: more than one must not be taken
        drain = self.limits.options.reuse and recorded is None
        self.wait("G", self.fakes.receive, self._store, has_arrived, drain)

    def _store(self, message: Message) -> None:
        self._num_received += 1
        self.read_note(message.note, message.version)
        self.buffer.put(message.tensors, message.version)
