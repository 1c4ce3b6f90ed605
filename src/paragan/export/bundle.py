"""Export of a generator: weights, programs in other formats, a sample sheet, the model card."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from paragan.checkpoint.best import Best
from paragan.core.errors import CheckpointError, ConfigError, ParaganError
from paragan.core.files import read_bytes, read_json_file, write_text
from paragan.core.layout import fingerprint
from paragan.core.outside_code import code_fingerprints
from paragan.export import gallery, generator_file
from paragan.export.formats import ENDINGS, WRITERS
from paragan.export.model_card import check_no_export_of, file_row, render_card
from paragan.export.sampled_images import SampledImages
from paragan.export.sampler import Sampler
from paragan.export.tensor_sampler import TensorSampler
from paragan.export.traceable import traceable

_MAX_BYTES = 1 << 20
_MARK = "<!-- weights "


@dataclass(frozen=True, kw_only=True)
class Bundle:
    """A generator to export.

    tree: the config. score: as in `score.json`, or empty. outside: code outside paragan
    that the config names. direction: of the programs, of a generator with several.
    """

    sampler: Sampler
    tree: Mapping[str, Any]
    score: Mapping[str, Any]
    outside: Collection[str] = ()
    direction: str | None = None

    def write(self, folder: Path, formats: Sequence[str]) -> list[str]:
        """Write the weights, other formats, and the model card last; return a line per file.

        Programs that an earlier export made of the same weights stay; files of other weights are removed.
        """
        folder.mkdir(parents=True, exist_ok=True)
        check_no_export_of(folder, "discriminator")
        weights = folder / f"generator{ENDINGS['safetensors']}"
        program_stem = self.direction or "generator"
        new = {name: folder / f"{program_stem}{ENDINGS[name]}" for name in WRITERS if name in formats}
        programs = self._program_paths(folder)
        former = [path for path in programs if path not in new.values() and path.is_file()]
        removed = [path for path in former if not self._is_exported(path)]
        # first what may fail: the weights then still belong to the former programs
        program_lines = self._write_programs(new)
        lines = [self.write_file(weights, "safetensors"), *program_lines]
        sheets = self._write_sheet(folder / "samples.png")
        if not sheets and "samples.png" in self._card(folder):
            removed.append(folder / "samples.png")
        for path in removed:
            path.unlink(missing_ok=True)
        files = [path for path in (weights, *programs, *map(Path, sheets)) if path.is_file()]
        self._write_card(folder, files)
        removals = [f"removed {path}, which an export of other weights had left" for path in removed]
        return [*removals, *lines, *sheets, str(folder / "README.md")]

    def write_single(self, path: Path, name: str) -> list[str]:
        """Write one format as this file, and anew the model card of an export next to it that lists it; return lines.

        Raises `ConfigError` where the files of an export next to it are of other weights.
        """
        folder = path.parent
        check_no_export_of(folder, "discriminator")
        if self._is_of_others(folder, path):
            raise ConfigError(
                f"{folder} holds an export of other weights, with which this file would be mixed; pass a file "
                f"in another folder, or --out {folder} to export all of it anew"
            )
        names = ("generator.safetensors", *(program.name for program in self._program_paths(folder)), "samples.png")
        listed = [other for other in map(folder.joinpath, names) if other == path or self._is_exported(other)]
        line = self.write_file(path, name)
        if self._mark not in self._card(folder) or path not in listed:
            return [line]
        self._write_card(folder, listed)
        return [line, str(folder / "README.md")]

    def _is_of_others(self, folder: Path, path: Path) -> bool:
        """Return whether the card in a folder, or its weights without a card, are of another export than this one."""
        card = self._card(folder)
        if _MARK in card:
            return self._mark not in card
        weights = folder / "generator.safetensors"
        if weights == path or not weights.is_file():
            return False
        with suppress(CheckpointError):
            return fingerprint(generator_file.read(weights).weights) != fingerprint(self.sampler.net.state_dict())
        return True

    def _program_paths(self, folder: Path) -> list[Path]:
        """Return the programs that any export of this generator writes to a folder."""
        stems = ["generator", *getattr(self.sampler.net, "directions", {})]
        return [folder / f"{stem}{ENDINGS[name]}" for stem in stems for name in WRITERS]

    def _write_card(self, folder: Path, files: Sequence[Path]) -> None:
        """Write the model card, whose last line names the weights. files: that it lists."""
        text = render_card(self.sampler, _without_folders(self.tree), self.score, files, bool(self.outside))
        write_text(folder / "README.md", f"{text}\n{self._mark}\n")

    def _write_programs(self, paths: Mapping[str, Path]) -> list[str]:
        """Write programs and return their lines; after a failure none is left next to other weights."""
        lines: list[str] = []
        written: list[Path] = []
        try:
            for name, path in paths.items():
                lines.append(self.write_file(path, name))
                written.append(path)
        except BaseException:
            for path in written:
                if self._mark not in self._card(path.parent):
                    path.unlink()
            raise
        return lines

    def check_programs(self) -> None:
        """Raise `ConfigError` where there are no programs, such as for a missing direction."""
        traceable(self.sampler, self.direction)

    def _is_exported(self, path: Path) -> bool:
        """Return whether the model card next to a file lists it, unchanged, with these weights and this config."""
        card = self._card(path.parent)
        return self._mark in card and path.is_file() and file_row(path, self.sampler.info.step) in card

    def _card(self, folder: Path) -> str:
        """Return the model card in a folder; empty if there is none."""
        with suppress(OSError):
            return read_bytes(folder / "README.md", _MAX_BYTES).decode(errors="replace")
        return ""

    @cached_property
    def _mark(self) -> str:
        """Comment of the card by which a later export knows the weights."""
        config = hashlib.sha256(self._config.encode()).hexdigest()
        return f"{_MARK}{fingerprint(self.sampler.net.state_dict())} config {config} -->"

    def write_file(self, path: Path, name: str) -> str:
        """Write one format and return a line with its path and its difference from the network."""
        path.parent.mkdir(parents=True, exist_ok=True)
        if name == "safetensors":
            self._weights(path)
            return str(path)
        difference = WRITERS[name](traceable(self.sampler, self.direction), path)
        return f"{path}  (differs from the network by at most {difference:.1e})"

    def _weights(self, path: Path) -> None:
        weights = self.sampler.net.state_dict()
        code = {Path(name).name: sha256 for name, sha256 in code_fingerprints(self.outside).items()}
        info = self.sampler.info
        generator_file.write(
            path,
            generator_file.GeneratorFile(weights=weights, config=self._config, info=info, score=self.score, code=code),
        )

    @property
    def _config(self) -> str:
        return json.dumps(_without_folders(self.tree), ensure_ascii=False)

    def _write_sheet(self, path: Path) -> list[str]:
        """Write the sample sheet and return its path; empty if its held-out pairs are missing."""
        sampler = self.sampler
        if isinstance(sampler, TensorSampler):
            with suppress(ParaganError):
                pictures, columns = sampler.held_out_pictures()
                return [str(SampledImages(pictures).save(path, columns))]
            return []
        if sampler.takes_condition:
            with suppress(ParaganError):
                images, columns = gallery.render_pairs(
                    sampler, min(8, sampler.num_pairs), seed=None, progress=lambda done: None
                )
                return [str(images.save(path, columns))]
            return []
        classes = range(min(sampler.num_comparable_classes, 10))
        if classes:
            sheet = gallery.class_sheet(sampler, classes, rows=None, columns=10)
        else:
            sheet = gallery.latent_sheet(sampler, num=80, columns=10, labels=(), seed=None)
        images = gallery.render_sheet(sampler, sheet, seed=None, truncation=None, progress=lambda done: None)
        return [str(images.save(path, sheet.columns))]


def read_score(path: Path, best: bool = False) -> Mapping[str, Any]:
    """Read the newest or the best score of a run; empty if missing."""
    with suppress(OSError, ValueError):
        return read_json_file((Best(path / "best").path() if best else path) / "score.json", dict, _MAX_BYTES)
    return {}


def _without_folders(tree: Any) -> Any:
    """Shorten the paths in a config to their last part, to publish no folder of this machine."""
    if isinstance(tree, Mapping):
        return {key: Path(item).name if _is_path(key, item) else _without_folders(item) for key, item in tree.items()}
    return [_without_folders(item) for item in tree] if isinstance(tree, list) else tree


def _is_path(key: str, item: Any) -> bool:
    return isinstance(item, str) and (key in ("path", "weights") or (key == "name" and item.endswith(".py")))
