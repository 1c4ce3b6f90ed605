"""Folder of an exported network: which of its files an export has written, and of which weights.

The model card (README.md) says so. Where there is none, an export first writes one without a mark, by which the next
export knows the files of one that was killed; then programs and weights; then the whole card. Its rows have the sha256
of each file, and its last line, the mark, stands for the weights and the config.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from torch import Tensor

from paragan.core.errors import CheckpointError, ConfigError
from paragan.core.files import read_bytes, write_text
from paragan.core.layout import fingerprint
from paragan.export import generator_file
from paragan.export.model_card import OWN_ROW, file_row

CARD = "README.md"
_MAX_CARD_BYTES = 1 << 20
_MARK = "<!-- weights "


@dataclass(frozen=True)
class ExportFolder:
    """A folder, seen from the generator that is exported to it.

    mark: last line of its model card, from `card_mark`. step: of the weights. names: of the files that an export of
    it writes, next to the card.
    """

    path: Path
    mark: str
    step: int
    names: Sequence[str]

    @property
    def files(self) -> list[Path]:
        """Paths of the files, of which some may be missing."""
        return [self.path / name for name in self.names]

    @property
    def card(self) -> Path:
        """Path of the model card."""
        return self.path / CARD

    def has_card(self) -> bool:
        """Return whether the model card is of these weights and this config."""
        return self.mark in read_card(self.path)

    def is_exported(self, file: Path) -> bool:
        """Return whether that card lists a file, which has not changed since: it may stay."""
        return self.has_card() and file.is_file() and file_row(file, self.step) in read_card(self.path)

    def check_single(self, file: Path) -> None:
        """Raise `ConfigError` for a file next to an export of other weights, with which it would be mixed."""
        check_no_export_of(self.path, "discriminator")
        if self._is_of_others(file):
            raise ConfigError(
                f"{self.path} holds an export of other weights, with which this file would be mixed; pass a file "
                f"in another folder, or --out {self.path} to export all of it anew"
            )

    def _is_of_others(self, file: Path) -> bool:
        """Return whether the card, or weights without a card, are of another export. file: that is replaced."""
        card = read_card(self.path)
        if _MARK in card:
            return self.mark not in card
        weights = self.path / "generator.safetensors"
        if weights == file or not weights.is_file():
            return False
        with suppress(CheckpointError):
            return fingerprint(generator_file.read(weights).weights) not in self.mark
        return True


def card_mark(weights: Mapping[str, Tensor], config: str) -> str:
    """Return the comment in a model card by which a later export knows the weights and the config."""
    return f"{_MARK}{fingerprint(weights)} config {hashlib.sha256(config.encode()).hexdigest()} -->"


def read_card(folder: Path) -> str:
    """Return the model card, or another README, of a folder; empty if there is none."""
    with suppress(OSError):
        return read_bytes(folder / CARD, _MAX_CARD_BYTES).decode(errors="replace")
    return ""


def begin_card(folder: Path) -> None:
    """Write a model card that says that the export has not ended, if there is none."""
    if not (folder / CARD).exists():
        write_text(folder / CARD, f"{OWN_ROW}|\n\nThis export has not ended. The same command writes all of it.\n")


def check_no_export_of(folder: Path, other: Literal["generator", "discriminator"]) -> None:
    """Raise `ConfigError` for a folder whose model card is that of the other player."""
    if (folder / f"{other}.safetensors").is_file():
        raise ConfigError(f"{folder} has an exported {other} and its model card; pass another folder as --out")


def check_no_other_files(folder: Path, weights: str, names: Sequence[str]) -> None:
    """Raise `ConfigError` for files that an export would replace or remove, but that no export has written.

    weights: name of the file by which an export is known that ended before its card. names: of all files.
    """
    if OWN_ROW in read_card(folder):
        return
    has_readme = (folder / CARD).exists()
    present = [name for name in names if (folder / name).exists()]
    if has_readme or (present and weights not in present):
        files = [CARD] if has_readme else present
        raise ConfigError(
            f"{folder} has {', '.join(files)}, which no export has written and this one would replace or remove; "
            "pass another folder as --out"
        )
