"""Profile of a run on one worker: what its step costs, measured, as one document."""

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import ClassVar

from pydantic import ConfigDict, TypeAdapter

from paragan.core.errors import ConfigError, describe_error
from paragan.core.files import read_json_file, write_json
from paragan.core.types import Side

VERSION = 3


@dataclass(frozen=True)
class Curve:
    """A cost as a function of the rows of a batch: linear between the measured points, and beyond.

    rows: increasing. values: seconds, or bytes.
    """

    rows: tuple[int, ...]
    values: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.rows or len(self.rows) != len(self.values) or list(self.rows) != sorted(set(self.rows)):
            raise ValueError("a curve needs increasing rows and as many values")

    def at(self, rows: float) -> float:
        """Return the cost of a batch of so many rows; never less than 0."""
        if len(self.rows) == 1:
            return self.values[0] * rows / self.rows[0]
        right = min(max(bisect_left(self.rows, rows), 1), len(self.rows) - 1)
        low = self.rows[right - 1]
        high = self.rows[right]
        share = (rows - low) / (high - low)
        return max(0.0, self.values[right - 1] + share * (self.values[right] - self.values[right - 1]))


@dataclass(frozen=True, kw_only=True)
class PlayerProfile:
    """One player.

    parameters, weight_bytes: of the weights that the run trains, 0 for a D that never begins; state_bytes: of all
    weights and buffers. update_s: seconds of one update, D's without the generation of its fakes. updates: of a step,
    for G and D 1. calls: extra players that its turns call. norms: collectives of batch norm in one update on several
    ranks, and `norm_bytes` of all of them together.
    """

    parameters: int
    weight_bytes: int
    state_bytes: int
    update_s: Curve
    norms: int
    norm_bytes: int
    updates: int = 1
    calls: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class RunProfile:
    """Costs of a run on one worker, which computes as a rank of several does.

    That is with DDP and the norms of several ranks, without a network. recipe, model: as
    configured; fingerprint: of the networks and their turns. machine, threads, device: where it was
    measured. batch: of the config. d_updates: of one step. generate_s: seconds of G's forward
    without graph. step_s: seconds of one whole step, with what lies between the updates;
    alone_step_s: of a process that is no rank. load_s: seconds of reading one batch without
    prefetch. sample_bytes, fake_bytes: of one row. memory: bytes at the peak of a step. cpu_share:
    of a step in which a processor core computed; the rest is an accelerator's. further: other players.
    """

    __pydantic_config__: ClassVar = ConfigDict(extra="forbid")

    recipe: str
    model: str
    fingerprint: str
    machine: str
    device: str
    threads: int
    batch: int
    d_updates: int
    g: PlayerProfile
    d: PlayerProfile
    generate_s: Curve
    generate_norms: int
    step_s: Curve
    alone_step_s: Curve
    load_s: Curve
    sample_bytes: int
    fake_bytes: int
    memory: Curve
    cpu_share: Curve
    further: Mapping[str, PlayerProfile] = field(default_factory=dict)
    version: int = VERSION

    @property
    def players(self) -> dict[Side, PlayerProfile]:
        """All players by side, in the order of their updates; G is the first."""
        return {Side.G: self.g, Side.D: self.d, **{Side(name): player for name, player in self.further.items()}}

    @property
    def updates(self) -> dict[Side, int]:
        """Updates of a step, by side."""
        extra = {Side(name): player.updates for name, player in self.further.items()}
        return {Side.G: 1, Side.D: self.d_updates, **extra}

    @property
    def batches_per_step(self) -> int:
        """Batches of a step: one for each update of the player, other than G, with the most."""
        return max(number for side, number in self.updates.items() if side is not Side.G)

    def alone_images_per_s(self, rows: float) -> float:
        """Return the real images per second of a process that is no rank."""
        return self.batches_per_step * rows / self.alone_step_s.at(rows)

    def between_s(self, rows: float) -> float:
        """Return the seconds of a step outside of its updates; shared by all updates."""
        updates_s = self.d_updates * self.generate_s.at(rows)
        updates_s += sum(number * self.players[side].update_s.at(rows) for side, number in self.updates.items())
        return max(0.0, self.step_s.at(rows) - updates_s)

    def write(self, path: Path) -> None:
        """Write the document as JSON."""
        write_json(path, asdict(self))


def read_profile(path: Path) -> RunProfile:
    """Return a profile from a file of `RunProfile.write`; `ConfigError` for any other file."""
    try:
        tree = read_json_file(path, dict)
        if tree["version"] != VERSION:
            raise ConfigError(f"{path} is a profile of version {tree['version']}, not {VERSION}; measure it again")
        return TypeAdapter(RunProfile).validate_python(tree)
    except (OSError, ValueError, KeyError, TypeError) as error:
        reason = f"{type(error).__name__}: {describe_error(error)[:100]}"
        raise ConfigError(
            f"{path} is not a profile of paragan ({reason}); write one with `plan --profile-file FILE`"
        ) from error
