"""Checkpoints that are whole or absent: safetensors + JSON under a sha256 manifest, written by any number of ranks.

A checkpoint is written into a temporary folder, each rank its own file, synced, given its manifest last, and renamed
into place. A reader takes the newest folder whose manifest and checksums hold."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors.torch import save_file

from paragan.checkpoint.reader import (
    MANIFEST,
    STATE,
    Checkpoint,
    NewerFormat,
    file_sha256,
    group_files,
    open_verified,
    read_checkpoint,
)
from paragan.core.collective import run_on_all_ranks
from paragan.core.dist import ALONE, World
from paragan.core.errors import CheckpointError
from paragan.core.files import refuse_link, write_text
from paragan.core.pieces import Pieces

FORMAT = 2
_Facts = dict[str, tuple[str, int]]  # sha256 and bytes of files, by name


@dataclass(frozen=True)
class CheckpointWriter:
    """The checkpoints of one run, which all ranks of `world` write and read together.

    say: receives a line on rank 0 when a damaged one is passed over.
    """

    folder: Path
    keep: int = 3
    say: Callable[[str], None] = print
    world: World = ALONE

    def save(self, step: int, groups: Mapping[str, Pieces], values: Mapping[str, Any]) -> Path:
        """Write one and drop all but the newest `keep`. Every rank gives what it holds; the values are rank 0's.

        On failure, on any rank, all raise, the older ones stand and nothing half-written remains.
        """
        final = self.path_of(step)
        temporary = self.folder / f".tmp-{final.name}"
        try:
            self._lead(lambda: self._begin(temporary))
            mine = self._mine(list(groups))
            written = run_on_all_ranks(self.world, lambda: self._write(temporary, groups, mine))
            self._lead(lambda: self._finish(temporary, final, written, {"step": step, "values": dict(values)}))
        except CheckpointError as error:
            if self.world.is_main:
                shutil.rmtree(temporary, ignore_errors=True)
            raise CheckpointError(
                f"checkpoint of step {step} was not written to {self.folder}: {error}; "
                "earlier checkpoints stand: make room and give the same command again"
            ) from None
        return final

    def _mine(self, groups: Sequence[str]) -> Sequence[str]:
        """Groups that no rank before this one has."""
        before = self.world.gather(list(groups))[: self.world.rank]
        return [group for group in groups if not any(group in theirs for theirs in before)]

    def _lead(self, act: Callable[[], None]) -> None:
        """Rank 0 acts, the others wait for it."""
        run_on_all_ranks(self.world, act if self.world.is_main else lambda: None)

    def _begin(self, temporary: Path) -> None:
        refuse_link(self.folder)
        for debris in self.folder.glob(".tmp-step-*"):  # of a save in which a rank was killed
            shutil.rmtree(debris, ignore_errors=True)
        temporary.mkdir(parents=True)

    def _write(self, folder: Path, groups: Mapping[str, Pieces], mine: Sequence[str]) -> _Facts:
        """This rank's files, synced. mine: groups that are this rank's to write where no rank has them in pieces."""
        if not folder.is_dir():
            raise CheckpointError(f"{folder} is not to be seen here, but on rank 0: all hosts need one file system")
        written = {}
        for group, pieces in groups.items():
            window = pieces.window
            if not pieces.writes or (window.of == 1 and group not in mine):
                continue
            piece = f".{window.index}-of-{window.of}" if window.of > 1 else ""
            path = folder / f"{group}{piece}.safetensors"
            save_file(pieces.mine, path)  # into a folder that rank 0 has just made: no link lies there
            path.chmod(_mode())  # it is the owner's alone otherwise, also on a disk that is shared
            _sync(path)
            written[path.name] = (file_sha256(path), path.stat().st_size)
        return written

    def _finish(self, temporary: Path, final: Path, written: list[_Facts], state: Mapping[str, Any]) -> None:
        files = {name: facts for of_rank in written for name, facts in of_rank.items()}
        for name, (_, size) in files.items():
            if not (temporary / name).is_file() or (temporary / name).stat().st_size != size:
                raise CheckpointError(f"{name} is not to be seen from rank 0: all hosts need one file system")
        group_files(files)  # no piece is lacking
        write_text(temporary / STATE, json.dumps(state, indent=1))
        sums = {name: sha256 for name, (sha256, _) in files.items()} | {STATE: file_sha256(temporary / STATE)}
        manifest = {"format": FORMAT, "files": dict(sorted(sums.items()))}
        write_text(temporary / MANIFEST, json.dumps(manifest, indent=1))
        _sync(temporary)
        shutil.rmtree(final, ignore_errors=True)
        if not final.is_dir():
            final.unlink(missing_ok=True)  # a file or a link in its place
        temporary.rename(final)
        _sync(self.folder)
        self._prune(final)

    def _prune(self, newest: Path) -> None:
        for later in self.paths():  # damaged ones that a resume passed over: they no longer count
            if later.name > newest.name:
                evidence = later.with_name(f"damaged-{later.name}")
                shutil.rmtree(evidence, ignore_errors=True)  # an earlier one of this step
                later.rename(evidence)
        self.prune_before(newest)

    def prune_before(self, newest: Path) -> None:
        """Remove all that are older than `newest` but the last `keep` - 1. A kill during a removal leaves some."""
        older = [path for path in self.paths() if path.name < newest.name]
        for old in older[: max(0, len(older) - self.keep + 1)]:
            shutil.rmtree(old, ignore_errors=True)

    def path_of(self, step: int) -> Path:
        """Where the checkpoint of a step lies or would lie."""
        return self.folder / f"step-{step:09d}"

    def paths(self) -> list[Path]:
        """Finished checkpoints, oldest first."""
        return sorted(p for p in self.folder.glob("step-*") if p.is_dir())

    def newest(self) -> Checkpoint | None:
        """The newest that rank 0 finds undamaged, on every rank; None if there never was one."""
        name = run_on_all_ranks(self.world, lambda: self._newest() if self.world.is_main else None)[0]
        if name is None:
            return None
        found: list[Checkpoint] = []
        run_on_all_ranks(self.world, lambda: found.append(open_verified(self.folder / name)))
        return found[0]

    def _newest(self) -> str | None:
        for path in reversed(self.paths()):
            try:
                return read_checkpoint(path).path.name
            except NewerFormat:
                raise
            except CheckpointError as error:
                self.say(f"{error}; trying the one before")
        if self.paths():
            raise CheckpointError(f"{self.folder}: no undamaged checkpoint is left; start anew with --fresh")
        return None


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _mode() -> int:
    """What a new file has here."""
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
