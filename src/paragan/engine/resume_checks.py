"""Whether the data and the networks of a run are those that a checkpoint was saved with."""

import hashlib
import heapq
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any

from paragan.checkpoint.reader import Checkpoint
from paragan.core.errors import CheckpointError
from paragan.core.source import Source
from paragan.core.types import Side
from paragan.game.player import Player
from paragan.game.structure import changed_layers

_NUM_COMPARED = 128  # samples whose classes are compared


def check_class_names(checkpoint: Checkpoint, names: Sequence[str]) -> None:
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


def classes_of_samples(source: Source) -> dict[str, str]:
    """Return the classes of up to 128 samples, by a hash of name and stamp, which is the same in any folder.

    Those with the lowest hashes of their names: the choice stays where samples are added or removed.
    """
    labels_N = source.row_labels() if source.class_names else None
    if labels_N is None or not source.stamp(0):
        return {}

    def name(row: int) -> str:
        return source.where(row).rpartition("/")[2]

    rows = heapq.nsmallest(_NUM_COMPARED, range(len(source)), lambda row: _hash(name(row)))
    return {_hash(f"{name(row)} {source.stamp(row)}"): source.class_names[labels_N[row]] for row in rows}


def _hash(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "surrogateescape"), digest_size=8).hexdigest()


def check_classes_of_samples(checkpoint: Checkpoint, classes: Mapping[str, str]) -> None:
    """Raise `CheckpointError` if most of the known samples of a class, two or more, had another class at the save.

    Then classes have changed places. A minority, or one sample, may have been corrected by hand.
    """
    saved = dict(checkpoint.values["data"].get("classes", {}))
    known = Counter(saved[sample] for sample in saved.keys() & classes.keys())
    moved = Counter(saved[sample] for sample in saved.keys() & classes.keys() if saved[sample] != classes[sample])
    for name, count in sorted(moved.items()):
        if count > 1 and 2 * count > known[name]:
            raise CheckpointError(
                f"checkpoint {checkpoint.path}: {count} of {known[name]} compared samples of class {name!r} now have "
                "another class; give the classes of the data their former names, or start anew with --fresh"
            )


def describe_data_change(saved: Any, source: Source) -> str:
    """Return how the data differs from that of a save, in a line; empty if it does not, or the save has none of it."""
    if not isinstance(saved, Mapping) or saved.get("fingerprint") == source.fingerprint:
        return ""
    count = f"{saved.get('samples')} training samples, now {len(source)}"
    files = f"{len(source)} training samples as before, but other files, times or settings"
    return f"the data has changed since the checkpoint: {files if saved.get('samples') == len(source) else count}"


def changed_layers_of_players(saved: Mapping[str, Any] | None, players: Mapping[str, Player]) -> dict[str, str]:
    """Return which layers differ from those of a save, by player; none if the save has no such values."""
    if saved is None:
        return {}
    return {name: changed_layers(dict(saved[name]), player.structure) for name, player in players.items()}


def check_frozen_networks(checkpoint: Checkpoint, side: Side, frozen: Mapping[str, str]) -> None:
    """Raise `CheckpointError` if a frozen network differs from that of the save. frozen: sha256 by name."""
    saved = checkpoint.values.get("frozen", {}).get(side.value, {})
    for name, sha256 in frozen.items():
        if saved.get(name, sha256) != sha256:
            raise CheckpointError(
                f"checkpoint {checkpoint.path}: {side.value}: the frozen network {name} had other weights (sha256 "
                f"{saved[name][:12]}…, now {sha256[:12]}…); provide those, or start anew with --fresh"
            )
