"""Export of a generator: weights, programs in other formats, a sample sheet, the model card."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from paragan.checkpoint.best import Best
from paragan.core.errors import ConfigError, DataError
from paragan.core.files import read_json_file, write_text
from paragan.core.outside_code import code_fingerprints
from paragan.export import gallery, generator_file
from paragan.export.export_folder import ExportFolder, begin_card, card_mark, check_no_export_of, check_no_other_files
from paragan.export.formats import ENDINGS, WRITERS
from paragan.export.model_card import render_card
from paragan.export.sampled_images import SampledImages
from paragan.export.sampler import Sampler
from paragan.export.tensor_sampler import TensorSampler
from paragan.export.traceable import Traceable, traceable

WEIGHTS = f"generator{ENDINGS['safetensors']}"
SHEET = "samples.png"
_MAX_SCORE_BYTES = 1 << 20


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

    def write(self, path: Path, formats: Sequence[str]) -> list[str]:
        """Write the weights, other formats, and the model card last into a folder; return a line per file.

        Files that an earlier export made of the same weights stay; others with names of an export are removed. Raises
        `ConfigError` for a folder where these are not of an export.
        """
        path.mkdir(parents=True, exist_ok=True)
        self.check_folder(path)
        folder = self._folder(path)
        stale = [file for file in folder.files if file.is_file() and not folder.is_exported(file)]
        begin_card(path)
        # programs first, as tracing may fail: then the former weights and programs still belong together
        program_stem = self.direction or "generator"
        programs = {name: path / f"{program_stem}{ENDINGS[name]}" for name in WRITERS if name in formats}
        program_lines = self._write_programs(programs, folder)
        weights = path / WEIGHTS
        lines = [self.write_file(weights, "safetensors"), *program_lines]
        sheets = self._write_sheet(path / SHEET)
        written = {weights, *programs.values(), *map(Path, sheets)}
        removed = [file for file in stale if file not in written]
        for file in removed:
            file.unlink()
        self._write_card(folder, [file for file in folder.files if file.is_file()])
        removals = [f"removed {file}, which an export of other weights had left" for file in removed]
        return [*removals, *lines, *sheets, str(folder.card)]

    def write_single(self, path: Path, name: str) -> list[str]:
        """Write one format as this file; return lines.

        An export of the same weights next to it has its model card written anew, if the file has a name of an export.
        Raises `ConfigError` for an export of other weights.
        """
        self.check_single(path)
        folder = self._folder(path.parent)
        is_part_of_export = path in folder.files and folder.has_card()
        listed = [file for file in folder.files if file == path or folder.is_exported(file)]
        line = self.write_file(path, name)
        if not is_part_of_export:
            return [line]
        self._write_card(folder, listed)
        return [line, str(folder.card)]

    def check_folder(self, path: Path) -> None:
        """Raise `ConfigError` for a folder with an exported discriminator, or with files that no export has written."""
        check_no_export_of(path, "discriminator")
        check_no_other_files(path, WEIGHTS, self._folder(path).names)

    def check_single(self, path: Path) -> None:
        """Raise `ConfigError` for a file next to an exported discriminator, or to an export of other weights."""
        self._folder(path.parent).check_single(path)

    def check_programs(self) -> None:
        """Raise `ConfigError` where there are no programs, such as for a missing direction."""
        traceable(self.sampler, self.direction)

    def _folder(self, path: Path) -> ExportFolder:
        stems = ["generator", *getattr(self.sampler.net, "directions", {})]
        programs = [f"{stem}{ENDINGS[name]}" for stem in stems for name in WRITERS]
        return ExportFolder(path, self._mark, self.sampler.info.step, (WEIGHTS, *programs, SHEET))

    @cached_property
    def _traceable(self) -> Traceable:
        return traceable(self.sampler, self.direction)

    @cached_property
    def _mark(self) -> str:
        return card_mark(self.sampler.net.state_dict(), self._config)

    def _write_card(self, folder: ExportFolder, files: Sequence[Path]) -> None:
        """Write the model card, whose last line names the weights. files: that it lists."""
        text = render_card(self.sampler, _without_folders(self.tree), self.score, files, bool(self.outside))
        write_text(folder.card, f"{text}\n{folder.mark}\n")

    def _write_programs(self, paths: Mapping[str, Path], folder: ExportFolder) -> list[str]:
        """Write programs and return their lines; after a failure none is left next to the weights of another export."""
        lines: list[str] = []
        written: list[Path] = []  # not the one that fails: its writer leaves no file, or the former one
        try:
            for name, path in paths.items():
                lines.append(self.write_file(path, name))
                written.append(path)
        except BaseException:
            if not folder.has_card():
                for path in written:
                    path.unlink()
            raise
        return lines

    def write_file(self, path: Path, name: str) -> str:
        """Write one format and return a line with its path and its difference from the network."""
        path.parent.mkdir(parents=True, exist_ok=True)
        if name == "safetensors":
            self._write_weights(path)
            return str(path)
        difference = WRITERS[name](self._traceable, path)
        return f"{path}  (differs from the network by at most {difference:.1e})"

    def _write_weights(self, path: Path) -> None:
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
        """Write the sample sheet and return its path; empty if held-out samples are missing, or are no images."""
        sampler = self.sampler
        if isinstance(sampler, TensorSampler):
            with suppress(ConfigError, DataError):
                pictures, columns = sampler.held_out_pictures()
                return [str(SampledImages(pictures).save(path, columns))]
            return []
        if sampler.takes_condition:
            with suppress(ConfigError, DataError):
                images, columns = gallery.render_pairs(sampler, min(8, sampler.num_pairs), seed=None)
                return [str(images.save(path, columns))]
            return []
        classes = range(min(sampler.num_comparable_classes, 10))
        if classes:
            sheet = gallery.class_sheet(sampler, classes, rows=None, columns=10)
        else:
            sheet = gallery.latent_sheet(sampler, num=80, columns=10, labels=(), seed=None)
        images = gallery.render_sheet(sampler, sheet, seed=None, truncation=None)
        return [str(images.save(path, sheet.columns))]


def read_score(path: Path, best: bool = False) -> Mapping[str, Any]:
    """Read the newest or the best score of a run; empty if missing."""
    with suppress(OSError, ValueError):
        return read_json_file((Best(path / "best").path() if best else path) / "score.json", dict, _MAX_SCORE_BYTES)
    return {}


def _without_folders(tree: Any) -> Any:
    """Shorten the paths in a config to their last part, to publish no folder of this machine."""
    if isinstance(tree, Mapping):
        return {key: Path(item).name if _is_path(key, item) else _without_folders(item) for key, item in tree.items()}
    return [_without_folders(item) for item in tree] if isinstance(tree, list) else tree


def _is_path(key: str, item: Any) -> bool:
    return isinstance(item, str) and (key in ("path", "weights") or (key == "name" and item.endswith(".py")))
