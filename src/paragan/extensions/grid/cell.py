"""Cell of the grid: one game, and the two genomes (its centre) that neighbours read."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from paragan.core import rng
from paragan.core.protocols import Loss, Network, Opponent, Turn
from paragan.core.types import Report, Side, Update
from paragan.extensions.grid.cell_state import CellState, Centre, PlayerCounters
from paragan.extensions.grid.genome import Genome, Traits
from paragan.game.gan import GAN
from paragan.game.player import Player
from paragan.game.scheme import Scheme
from paragan.loading.loader import BatchStream


@dataclass
class RandomOpponent:
    """`core.protocols.PlayerSlot` that updates its player but plays as a random candidate.

    Candidates are drawn from the neighbourhood for every batch, as in the Lipizzaner papers.
    """

    player: Player
    candidates: Sequence[Network] = ()
    _order: list[int] = field(default_factory=list)
    _num_drawn: int = 0

    def draw(self, candidates: Sequence[Network], num: int, seed: int, cell: int, generation: int) -> None:
        """Draw candidates for the next `num` turns of the other player; longer use repeats them."""
        generator = rng.generator(seed, "rival", cell, generation, self.player.side.value)
        self.candidates = candidates
        self._num_drawn = 0
        self._order = torch.randint(len(candidates), (num,), generator=generator).tolist()

    @property
    def version(self) -> int:
        return self.player.version

    @property
    def updates_per_step(self) -> int:
        return self.player.updates_per_step

    @property
    def update_probability(self) -> float:
        return self.player.update_probability

    def network(self) -> Network:
        """Return the next drawn candidate."""
        number = self._order[self._num_drawn % len(self._order)]
        self._num_drawn += 1
        return self.candidates[number]

    def update(self, turn: Turn, against: Opponent) -> Update:
        """Update the player, never a candidate."""
        return self.player.update(turn, against)

    def generate_fakes(self, turn: Turn) -> tuple[Tensor, ...]:
        return self.player.generate_fakes(turn)


@dataclass(kw_only=True)
class Cell:
    """Game of one grid place, with its centre and mixture weights.

    losses: candidates from which a loss is drawn; empty: the game's loss. weights: of the generators of the
    neighbourhood. fitness: of the cell's genomes, and score: of its mixture, both measured in the last generation.
    """

    number: int
    gan: GAN
    scheme: Scheme
    batches: BatchStream
    losses: Sequence[Loss] = ()
    centre: Centre = field(init=False)
    weights: tuple[float, ...] = ()
    fitness: dict[Side, float] = field(default_factory=dict)
    score: float | None = None
    loss: int = 0  # number of the loss drawn last
    _loaded: dict[Side, Genome] = field(default_factory=dict)  # genomes that equal the players, until these train
    _ancestors: dict[Side, int] = field(default_factory=dict)  # cell in which the lineage of each player began

    def __post_init__(self) -> None:
        centre = {}
        for side, player in self.players.items():
            traits = Traits(lr=player.policy.lr, loss=0, cell=self.number, generation=0)
            centre[side] = self._snapshot_player(side, traits)
        self.centre = centre

    @property
    def players(self) -> dict[Side, Player]:
        """Players of the game by side."""
        return players_of(self.gan)

    @property
    def random_opponents(self) -> dict[Side, RandomOpponent]:
        """Player slots with opponents drawn per batch; empty if G and D train with each other."""
        return {side: slot for side, slot in self.gan.slots.items() if isinstance(slot, RandomOpponent)}

    def clone(self, side: Side, genome: Genome, lr: float) -> None:
        """Turn the player of one side into a clone of this genome, with learning rate `lr`."""
        player = self.players[side]
        if self._loaded.get(side) is not genome:
            genome.load_into(player)
        player.set_lr_base(lr)
        self._loaded.pop(side, None)
        self._ancestors[side] = genome.traits.cell

    def train_step(self, loss: int) -> Report:
        """Run one step of the game. loss: its number, ignored if the cell has no candidates."""
        if self.losses:
            self.loss = loss
            self.gan.loss = self.losses[loss]
        return self.scheme.step(self.gan, self.batches)

    def snapshot(self, generation: int) -> Centre:
        """Copy the players as genomes of this generation."""
        self.scheme.quiesce()
        genomes = {}
        for side, player in self.players.items():
            ancestor = self._ancestors.get(side, self.number)
            traits = Traits(lr=player.policy.lr, loss=self.loss, cell=ancestor, generation=generation)
            genomes[side] = self._snapshot_player(side, traits)
        return genomes

    def state(self) -> CellState:
        """Return the complete state at a generation boundary. Reads counters from the device."""
        clock = self.gan.clock
        return CellState(
            number=self.number,
            centre=self.centre,
            weights=self.weights,
            fitness={side: value for side, value in self.fitness.items() if math.isfinite(value)},
            score=self.score,
            loss=self.loss,
            position=self.batches.position,
            clock=(clock.step, clock.images),
            counters={side: PlayerCounters(p.version, p.images, int(p.updates)) for side, p in self.players.items()},
        )

    def restore(self, state: CellState) -> None:
        """Restore a state except the players' weights, which the next `clone` loads."""
        self.centre = state.centre
        self.weights = state.weights
        self.loss = state.loss
        self.fitness = dict(state.fitness)
        self.score = state.score
        self.batches.position = state.position
        self.gan.clock.step, self.gan.clock.images = state.clock
        for side, player in self.players.items():
            counters = state.counters[side]
            player.version = counters.version
            player.images = counters.images
            player.updates.fill_(counters.updates)
            player.due_turns = counters.updates  # the turns skipped before are not saved: from here on none is
        self._loaded.clear()

    def _snapshot_player(self, side: Side, traits: Traits) -> Genome:
        genome = Genome.from_player(self.players[side], traits)
        self._loaded[side] = genome
        return genome


def players_of(gan: GAN) -> dict[Side, Player]:
    """Return the players of a game, also where their slots are random opponents."""
    slots = gan.slots.items()
    players = {side: slot.player if isinstance(slot, RandomOpponent) else slot for side, slot in slots}
    # always all: the schemes of grids have no players on other ranks
    return {side: player for side, player in players.items() if isinstance(player, Player)}
