"""Game of a run with its data and its checkpoints."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import isfinite
from typing import Any

from paragan.checkpoint.best import Best
from paragan.checkpoint.reader import Checkpoint, check_base, read_checkpoint, read_counts, restoring
from paragan.checkpoint.writer import CheckpointWriter
from paragan.core.collective import run_on_all_ranks
from paragan.core.dist import ALONE, World
from paragan.core.event import Event
from paragan.core.layout import Pieces
from paragan.core.phases import Phase, PhaseClock, phase
from paragan.core.roles import Roles, colocated_roles
from paragan.core.types import Clock
from paragan.engine.divergence import raise_if_not_finite
from paragan.engine.resume_checks import (
    changed_layers_of_players,
    check_class_names,
    check_classes_of_samples,
    check_frozen_networks,
    classes_of_samples,
    describe_data_change,
)
from paragan.game.gan import GAN
from paragan.game.player import Player
from paragan.game.prior import Prior
from paragan.game.scheme import Scheme
from paragan.game.state import base_sha256, restore, state_of
from paragan.layers.frozen import frozen_networks
from paragan.loading.loader import BatchStream


@dataclass(kw_only=True)
class SavedGame:
    """A game whose state is saved to checkpoints and restored from them; fields as in `TrainingLoop`.

    `resume` chooses a checkpoint for all ranks. `resume_from` restores it on one rank: the place in the data, the
    clock and, by `restore`, the players; a rollback restores the players alone.
    """

    gan: GAN
    scheme: Scheme
    batches: BatchStream
    checkpoints: CheckpointWriter
    roles: Roles = colocated_roles(ALONE)
    sync_period: int = 1
    phases: PhaseClock = field(default_factory=PhaseClock, init=False)  # of the thread that trains
    saved_at: int = field(default=-1, init=False)  # step of the newest checkpoint
    is_score_pending: bool = field(default=False, init=False)  # a stop interrupted the newest score
    data_change: str = field(default="", init=False)  # of the data since the checkpoint that was restored
    changed_layers: dict[str, str] = field(default_factory=dict, init=False)  # since then, by player
    _base_sha256: dict[str, str] = field(default_factory=dict, init=False)
    # losses and other numbers of the checkpoint that was restored; a resumed run logs them until newer ones are due
    _saved_numbers: dict[str, float] = field(default_factory=dict, init=False)

    @property
    def world(self) -> World:
        """All ranks of the run."""
        return self.roles.world

    @property
    def clock(self) -> Clock:
        """Steps and real images so far."""
        return self.gan.clock

    @property
    def prior(self) -> Prior:
        """Distribution of latents and labels."""
        return self.gan.prior

    @property
    def is_synchronized(self) -> bool:
        """Whether all ranks of a player hold the same weights; needed to save, score and end."""
        is_due = self.clock.step % self.sync_period == 0
        return is_due and all(player.is_synchronized for player in self.players.values())

    @property
    def best(self) -> Best:
        """Folder of the checkpoint with the best score."""
        return Best(self.checkpoints.folder.parent / "best")

    @property
    def players(self) -> dict[str, Player]:
        """Players that train in this process, by side."""
        slots = self.gan.slots.items()
        return {side.value: slot for side, slot in slots if isinstance(slot, Player) and self.roles.has(side)}

    def event(self, kind: str, values: Mapping[str, Any]) -> Event:
        """Return an event at the current step."""
        return Event(kind=kind, step=self.clock.step, images=self.clock.images, values=values)

    @phase(Phase.CHECKPOINT)
    def save(self) -> Event:
        """Write a checkpoint. Collective. Raises `DivergedError` if a tensor is not finite."""
        self.scheme.quiesce()
        groups, values = self.state()
        source = self.batches.source
        sample_name = self.prior.sample_name
        raise_if_not_finite(self.world, self.clock.step, groups, source)
        values |= {
            "clock": {"step": self.clock.step, "images": self.clock.images},
            "position": self.batches.position,
            "model": {
                "shape": source.tensors[sample_name].shape,
                "class_sizes": self.prior.class_sizes,
                "class_names": source.class_names,
                "condition_channels": source.condition_channels,
            },
            "data": {"samples": len(source), "fingerprint": source.fingerprint, "classes": self._sample_classes},
            "owes_score": self.is_score_pending,
        }
        numbers = self._newest_numbers().items()
        # JSON has no NaN, which a skipped update has
        values["numbers"] = {name: number if isfinite(number) else str(number) for name, number in numbers}
        path = self.checkpoints.save(self.clock.step, groups, values)
        self.saved_at = self.clock.step
        return self.event("checkpoint", {"path": str(path)})

    def _newest_numbers(self) -> Mapping[str, float]:
        """Return the newest value of each number that is logged. Collective."""
        return self._saved_numbers

    @cached_property
    def _sample_classes(self) -> dict[str, str]:
        return classes_of_samples(self.batches.source)

    def state(self) -> tuple[dict[str, Pieces], dict[str, Any]]:
        """Return the state of the players for a checkpoint: tensors by group, and JSON values."""
        states = {name: state_of(player) for name, player in self.players.items()}
        counters = self.roles.gather_merged({name: numbers for name, (_, numbers) in states.items()})
        structure = self.roles.gather_merged({name: player.structure for name, player in self.players.items()})
        values: dict[str, Any] = {"players": counters, "structure": structure}
        # their weights are not in the checkpoint
        frozen = self.roles.gather_merged({name: self._frozen_sha256(player) for name, player in self.players.items()})
        if any(frozen.values()):
            values["frozen"] = frozen
        bases = self.roles.gather_merged(self._bases())
        if any(bases.values()):
            values["base"] = bases
        return {name: pieces for name, (pieces, _) in states.items()}, values

    def _bases(self) -> dict[str, str]:
        """Return the sha256 of each player's base, computed once, since it never changes.

        Collective over the ranks of each player.
        """
        if not self._base_sha256:
            self._base_sha256.update({name: base_sha256(player) for name, player in self.players.items()})
        return self._base_sha256

    def resume(self, best: bool = False) -> bool:
        """Restore the newest undamaged or the best checkpoint; False if none exists. Collective."""
        checkpoint = read_checkpoint(self.best.path()) if best else self.checkpoints.newest()
        if checkpoint is None:
            return False
        self._bases()  # not in the function that one rank may leave early
        run_on_all_ranks(self.world, lambda: self.resume_from(checkpoint))
        self.changed_layers = self.roles.gather_merged(self.changed_layers)
        self.saved_at = self.clock.step
        return True

    def resume_from(self, checkpoint: Checkpoint) -> None:
        """Restore this checkpoint, on this rank."""
        values = checkpoint.values
        source = self.batches.source
        self.data_change = describe_data_change(values.get("data"), source)
        with restoring(checkpoint):
            check_class_names(checkpoint, source.class_names)
            if self.data_change:
                check_classes_of_samples(checkpoint, self._sample_classes)
            counts = read_counts(values, "position") | read_counts(values["clock"], "step", "images")
            self.restore(checkpoint)
            self.changed_layers = changed_layers_of_players(values.get("structure"), self.players)
        self.batches.position = counts["position"]
        self.clock.step = counts["step"]
        self.clock.images = counts["images"]
        self.is_score_pending = values.get("owes_score") is True

    def restore(self, checkpoint: Checkpoint) -> None:
        """Restore the result of `state`. Raises `CheckpointError` for invalid values."""
        with restoring(checkpoint):
            for name, player in self.players.items():
                saved = checkpoint.values["players"][name]
                # checkpoints of a version before 0.2.0 have no `due_turns`
                counters = ["version", "images", *(["due_turns"] if "due_turns" in saved else [])]
                counts = read_counts(saved, *counters)
                check_frozen_networks(checkpoint, player.side, self._frozen_sha256(player))
                check_base(checkpoint.path, checkpoint.values, name, self._bases()[name])
                restore(player, checkpoint.groups[name], counts)
            numbers = dict(checkpoint.values.get("numbers", {}))
            self._saved_numbers = {name: float(number) for name, number in numbers.items()}

    def _frozen_sha256(self, player: Player) -> dict[str, str]:
        """Return the fingerprints of the frozen networks that a player and its penalties call."""
        sha256 = {name: frozen.sha256 for name, frozen in frozen_networks(player.net).items()}
        for penalty in self.gan.penalties[player.side]:
            if penalty.frozen_sha256 is not None:
                sha256[f"of penalty {penalty.name}"] = penalty.frozen_sha256
        return sha256
