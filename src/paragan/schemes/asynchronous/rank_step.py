"""G and D that train at the same time on separate ranks: the step of this rank's player."""

from paragan.core.roles import Roles
from paragan.core.types import Batch, Report, Side
from paragan.distributed.links.gloo_link import GlooReceiver, GlooSender
from paragan.game.gan import GAN
from paragan.game.snapshot import RemotePlayer
from paragan.schemes.asynchronous.fakes import (
    FakesReceiver,
    FakesSender,
    bound_of_messages,
    empty_rows,
    overlapping_ranks,
)
from paragan.schemes.asynchronous.player_step import StalenessLimit
from paragan.schemes.asynchronous.two_players import DiscriminatorStep, GeneratorStep
from paragan.schemes.base.concurrent import StalenessLog
from paragan.schemes.base.rank_links import RankLinks


class RankStep:
    """Steps of one game on this rank, which has G or D. first: this rank's rows of D's first batch."""

    def __init__(self, gan: GAN, roles: Roles, first: Batch, limits: StalenessLimit) -> None:
        self.gan = gan
        self.side = roles.sides[0]
        g_batch = limits.options.g_batch
        total = first.rows.total if g_batch is None or not limits.options.reuse else g_batch
        self.player_step: GeneratorStep | DiscriminatorStep
        if self.side is Side.G:
            self.player_step = self._start_generator(roles, limits, total)
        else:
            self.player_step = self._start_discriminator(roles, limits, total, first)

    def _start_generator(self, roles: Roles, limits: StalenessLimit, total: int) -> GeneratorStep:
        """Open the links to the ranks of D, and wait for D's current state. total: fakes in a delivery of all ranks."""
        d = self.gan.d
        assert isinstance(d, RemotePlayer) and d.snapshot is not None
        d.snapshot.forget()  # an earlier session's versions may be higher, after a return to a checkpoint
        self._links = _Links(roles, limits, total, max_bytes=d.snapshot.num_bytes)
        senders_to_d = [self._links.senders.get(d_rank) for d_rank in range(len(roles.ranks[Side.D]))]
        (states,) = self._links.receivers.values()  # one rank of D is enough: all have the same state
        step = GeneratorStep(
            gan=self.gan,
            opponent=d.snapshot,
            fakes=FakesSender(senders_to_d, limits.rounds_fakes),
            states=states,
            limits=limits,
            world=roles.batch_world,
        )
        step.wait_for_d(self.gan.g.version)
        return step

    def _start_discriminator(self, roles: Roles, limits: StalenessLimit, total: int, first: Batch) -> DiscriminatorStep:
        """Open the links to the ranks of G, and send them D's current state."""
        like = empty_rows(self.gan, first)
        self._links = _Links(roles, limits, total, max_bytes=bound_of_messages(like, total))
        receivers = [self._links.receivers[g_rank] for g_rank in sorted(self._links.receivers)]
        fakes = FakesReceiver(receivers, like, limits.rounds_fakes)
        step = DiscriminatorStep(self.gan, fakes, list(self._links.senders.values()), limits)
        step.publish()  # perhaps that of a checkpoint; G waits for it
        return step

    @property
    def staleness_logs(self) -> dict[str, StalenessLog]:
        return {self.side.value: self.player_step.log}

    def step(self, reals: list[Batch]) -> Report:
        """Run the step of this rank's player, G or D."""
        return self.gan.report(reals[-1].rows.total, {self.side: self.player_step.step(reals)})

    def quiesce(self) -> None:
        """Update the snapshot of D on G's ranks, exactly. Collective over D's ranks."""
        if isinstance(self.player_step, GeneratorStep):
            self.player_step.wait_for_d(self.gan.g.version)
        else:
            self.player_step.publish_exactly()

    def close(self) -> None:
        """Close the links."""
        self._links.close()


class _Links(RankLinks):
    """Link ends of this rank, by the other end's rank in its role: G sends fakes and receives states, D the reverse.

    total: fakes in a delivery of all ranks. max_bytes: largest message that this rank receives.
    """

    def __init__(self, roles: Roles, limits: StalenessLimit, total: int, max_bytes: int) -> None:
        super().__init__(roles)
        self.max_in_flight = limits.max_in_flight
        self.max_bytes = max_bytes
        self.senders: dict[int, GlooSender] = {}
        self.receivers: dict[int, GlooReceiver] = {}
        # All ranks open all links in this one order: an open end waits for the other, and none waits in a cycle.
        for g_rank, d_rank in overlapping_ranks(total, len(roles.ranks[Side.G]), len(roles.ranks[Side.D])):
            self._open(f"fakes/{g_rank}/{d_rank}", Side.G, g_rank, d_rank)
        for g_rank, d_rank in enumerate(roles.sources(Side.G, Side.D)):
            self._open(f"states/{g_rank}", Side.D, g_rank, d_rank)

    def _open(self, name: str, sender: Side, g_rank: int, d_rank: int) -> None:
        """Open the link between a rank of G and one of D, if this is one of them."""
        side = self.roles.sides[0]
        local, other = (g_rank, d_rank) if side is Side.G else (d_rank, g_rank)
        if self.roles.batch_world.rank != local:
            return
        if side is sender:
            self.senders[other] = self.open_sender(name)
        else:
            self.receivers[other] = self.open_receiver(name, self.max_bytes, self.max_in_flight)
