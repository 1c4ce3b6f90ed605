"""Game of a run with its data and its checkpoints, and its players and data in words and numbers."""

import hashlib
import heapq
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import zip_longest
from math import isfinite, prod
from typing import Any

import torch

from paragan.checkpoint.best import Best
from paragan.checkpoint.reader import Checkpoint, check_base, read_checkpoint, read_counts, restoring
from paragan.checkpoint.writer import CheckpointWriter
from paragan.core.collective import run_on_all_ranks
from paragan.core.dist import ALONE, World
from paragan.core.errors import CheckpointError
from paragan.core.event import Event
from paragan.core.layout import Pieces
from paragan.core.phases import Phase, PhaseClock, phase
from paragan.core.roles import Roles, colocated_roles
from paragan.core.source import Source, tensor_texts
from paragan.core.types import Clock, Side
from paragan.engine.divergence import raise_if_not_finite
from paragan.engine.step_log import StepLog
from paragan.evaluation.fixed_samples import FixedSamples
from paragan.evaluation.fixed_tensors import FixedTensors
from paragan.game.gan import GAN
from paragan.game.player import Player
from paragan.game.prior import Prior
from paragan.game.scheme import Scheme
from paragan.game.state import base_sha256, restore, state_of
from paragan.game.structure import changed_layers
from paragan.layers.frozen import frozen_networks
from paragan.loading.loader import BatchStream

_PRECISIONS = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16"}
_NUM_COMPARED = 128  # samples whose classes are compared when a run is resumed


@dataclass(kw_only=True)
class SavedGame:
    """A game whose state is saved to checkpoints and restored from them; fields as in `TrainingLoop`."""

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
    _log: StepLog | None = field(default=None, init=False)  # from the first event on
    _saved_numbers: dict[str, float] = field(default_factory=dict, init=False)  # newest ones at the last save

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
        sample = self.prior.arguments[0]
        facts = {"class_names": source.class_names, "condition_channels": source.condition_channels}
        raise_if_not_finite(self.world, self.clock.step, groups, source)
        values |= {
            "clock": {"step": self.clock.step, "images": self.clock.images},
            "position": self.batches.position,
            "model": {"shape": source.tensors[sample].shape, "class_sizes": self.prior.class_sizes, **facts},
            "data": {"samples": len(source), "fingerprint": source.fingerprint, "classes": self._sample_classes},
            "owes_score": self.is_score_pending,
        }
        numbers = self._saved_numbers if self._log is None else self._log.newest_numbers()
        # JSON has no NaN, which a skipped update has
        values["numbers"] = {name: number if isfinite(number) else str(number) for name, number in numbers.items()}
        path = self.checkpoints.save(self.clock.step, groups, values)
        self.saved_at = self.clock.step
        return self.event("checkpoint", {"path": str(path)})

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
        """Return the sha256 of each player's base, computed once, since it never changes. Collective."""
        if not self._base_sha256:
            self._base_sha256.update({name: base_sha256(player) for name, player in self.players.items()})
        return self._base_sha256

    @cached_property
    def _sample_classes(self) -> dict[str, str]:
        """Classes of up to 128 samples, by a hash of name and stamp, which is the same in any folder.

        Those with the lowest hashes of their names: the choice stays where samples are added or removed.
        """
        source = self.batches.source
        labels_N = source.row_labels() if source.class_names else None
        if labels_N is None or not source.stamp(0):
            return {}

        def name(row: int) -> str:
            return source.where(row).rpartition("/")[2]

        rows = heapq.nsmallest(_NUM_COMPARED, range(len(source)), lambda row: _hash(name(row)))
        return {_hash(f"{name(row)} {source.stamp(row)}"): source.class_names[labels_N[row]] for row in rows}

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
        self.data_change = _describe_change(values.get("data"), source)
        with restoring(checkpoint):
            _check_class_names(checkpoint, source.class_names)
            if self.data_change:
                _check_classes_of_samples(checkpoint, self._sample_classes)
            counts = read_counts(values, "position") | read_counts(values["clock"], "step", "images")
            self.restore(checkpoint)
            self.changed_layers = _changed_layers(values.get("structure"), self.players)
        self.batches.position = counts["position"]
        self.clock.step = counts["step"]
        self.clock.images = counts["images"]
        self.is_score_pending = values.get("owes_score") is True

    def restore(self, checkpoint: Checkpoint) -> None:
        """Restore the result of `state`. Invalid values raise KeyError, TypeError or ValueError."""
        for name, player in self.players.items():
            saved = checkpoint.values["players"][name]
            counters = ["version", "images", *(["due_turns"] if "due_turns" in saved else [])]
            counts = read_counts(saved, *counters)
            _check_frozen_networks(checkpoint, player.side, self._frozen_sha256(player))
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


def _check_class_names(checkpoint: Checkpoint, names: Sequence[str]) -> None:
    """Raise `CheckpointError` if a class was called otherwise at the save: labels would mean other classes."""
    saved = dict(checkpoint.values.get("model", {})).get("class_names", names)
    for number, (before, now) in enumerate(zip_longest(saved, names)):
        if before != now:
            was = "did not exist" if before is None else f"was {before!r}"
            now_is = "does not exist" if now is None else f"is {now!r}"
            raise CheckpointError(
                f"checkpoint {checkpoint.path}: class {number} {was}, and now {now_is}; give the classes of the data "
                "their former names, or start anew with --fresh"
            )


def _hash(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "surrogateescape"), digest_size=8).hexdigest()


def _check_classes_of_samples(checkpoint: Checkpoint, classes: Mapping[str, str]) -> None:
    """Raise `CheckpointError` if most of the known samples of a class, two or more, had another class at the save."""
    saved = dict(checkpoint.values["data"].get("classes", {}))
    known = Counter(saved[sample] for sample in saved.keys() & classes.keys())
    moved = Counter(saved[sample] for sample in saved.keys() & classes.keys() if saved[sample] != classes[sample])
    for name, count in sorted(moved.items()):
        if count > 1 and 2 * count > known[name]:
            raise CheckpointError(
                f"checkpoint {checkpoint.path}: {count} of {known[name]} compared samples of class {name!r} now have "
                "another class; give the classes of the data their former names, or start anew with --fresh"
            )


def _describe_change(saved: Any, source: Source) -> str:
    """Return how the data differs from that of a save, in a line; empty if it does not, or the save is older."""
    if not isinstance(saved, Mapping) or saved.get("fingerprint") == source.fingerprint:
        return ""
    count = f"{saved.get('samples')} training samples, now {len(source)}"
    files = f"{len(source)} training samples as before, but other files, times or settings"
    return f"the data has changed since the checkpoint: {files if saved.get('samples') == len(source) else count}"


def _changed_layers(saved: Mapping[str, Any] | None, players: Mapping[str, Player]) -> dict[str, str]:
    """Return which layers differ from those of a save, by player; none if the save is older."""
    if saved is None:
        return {}
    return {name: changed_layers(dict(saved[name]), player.structure) for name, player in players.items()}


def _check_frozen_networks(checkpoint: Checkpoint, side: Side, frozen: Mapping[str, str]) -> None:
    """Raise `CheckpointError` if a frozen network differs from that of the save.

    frozen: sha256 by name.
    """
    saved = checkpoint.values.get("frozen", {}).get(side.value, {})
    for name, sha256 in frozen.items():
        if saved.get(name, sha256) != sha256:
            raise CheckpointError(
                f"checkpoint {checkpoint.path}: {side.value}: the frozen network {name} had other weights (sha256 "
                f"{saved[name][:12]}…, now {sha256[:12]}…); provide those, or start anew with --fresh"
            )


def describe_player(player: Player) -> dict[str, Any]:
    """Describe a player: number of weights, precision, channels_last, device and strategy."""
    first = next(player.net.parameters())
    dtype = first.dtype if player.calling.dtype is None else player.calling.dtype
    shapes = player.strategy.shapes(player.net)
    sizes = {name: prod(shapes[name]) for name in player.strategy.parameter_names(player.net)}
    weights = {"weights": sum(sizes.values())}
    if player.base:
        weights["trained"] = sum(size for name, size in sizes.items() if name not in player.base)
    return {
        **weights,
        "precision": _PRECISIONS.get(dtype, str(dtype)),
        "channels_last": player.calling.channels_last,
        "device": str(first.device),
        "strategy": type(player.strategy).__module__.rpartition(".")[2],
    }


def describe_data(source: Source, samples: FixedSamples | FixedTensors | None, prior: Prior) -> dict[str, Any]:
    """Describe the data: shape and number of samples, and classes. samples: of the sheets."""
    shape = source.tensors[prior.arguments[0]].shape
    data: dict[str, Any] = {"shape": list(shape), "images": len(source), "class_names": list(source.class_names)}
    if samples is not None and samples.held_out is not None:
        data["held_out_pairs"] = len(samples.held_out)
    if not prior.uses_labels:
        data["labels"] = "ignored by the generator"
    if not source.is_image:
        data["tensors"] = tensor_texts(source.tensors)
    return data
