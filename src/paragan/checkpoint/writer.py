"""Atomic checkpoints: safetensors and JSON under a sha256 manifest, written by any number of ranks.

Every rank writes its file into a temporary folder and syncs it; the manifest is written last, then the folder is
renamed into place. A reader takes the newest folder whose manifest and checksums are valid.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections import ChainMap
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from safetensors.torch import save_file

from paragan.checkpoint.manifest import (
    MANIFEST,
    STATE,
    Boxes,
    NewerFormat,
    assign_files,
    describe_boxes,
    write_manifest,
)
from paragan.checkpoint.reader import Checkpoint, file_sha256, open_verified, read_checkpoint
from paragan.core.collective import run_on_all_ranks
from paragan.core.dist import ALONE, World
from paragan.core.errors import CheckpointError
from paragan.core.files import check_no_link, create_subfolder, link_or_copy, remove_tree, write_text
from paragan.core.layout import Pieces

T = TypeVar("T")
_STEP = re.compile("step-[0-9]+")
_FileInfo = dict[str, tuple[str, int]]  # sha256 and size in bytes, by file name


@dataclass(frozen=True, kw_only=True)
class CheckpointWriter:
    """The checkpoints of one run. Every method that writes or loads is collective over `world`.

    keep: number of newest checkpoints that are not pruned; older ones are thinned by age. log: receives a line on rank
    0 for every damaged checkpoint that is skipped. protected: steps whose checkpoints are not pruned either.
    """

    folder: Path
    keep: int = 3
    log: Callable[[str], None] = print
    world: World = ALONE
    protected: set[int] = field(default_factory=set, compare=False)

    def save(self, step: int, groups: Mapping[str, Pieces], values: Mapping[str, Any]) -> Path:
        """Write a checkpoint and thin those before the newest `keep`. Collective.

        groups: the tensors of this rank. values: written by rank 0. If any rank fails, all ranks
        raise `CheckpointError`; older checkpoints stay and no partial one remains.
        """
        final = self.path_of(step)
        temporary = self.folder / f".tmp-{final.name}"
        has_begun = False
        try:
            self._run_on_main(lambda: self._begin(temporary))
            has_begun = True
            files = self._assign_files(groups)
            written = run_on_all_ranks(self.world, lambda: self._write(temporary, groups, files[self.world.rank]))
            state = {"step": step, "values": dict(values)}
            self._run_on_main(lambda: self._finish(temporary, final, state, ChainMap(*files), ChainMap(*written)))
        except CheckpointError as error:
            problem = f"{error}; earlier checkpoints are intact: free space or permit writing, and repeat the command"
            if has_begun and self.world.is_main and not temporary.is_dir():  # another program did that
                problem = (
                    "the folder was removed or moved while it was written; bring it back and run the same command "
                    "again, which resumes from its newest checkpoint"
                )
            if self.world.is_main:
                remove_tree(temporary)
            raise CheckpointError(f"checkpoint of step {step} was not written to {self.folder}: {problem}") from None
        try:
            self._run_on_main(lambda: self._put_in_place(temporary, final))
        except CheckpointError as error:
            raise CheckpointError(f"checkpoint of step {step} in {self.folder}: {error}") from None
        return final

    def _assign_files(self, groups: Mapping[str, Pieces]) -> list[dict[str, Boxes]]:
        """Assign each box, by file, to the lowest rank that holds the box. Collective."""
        boxes = {group: describe_boxes(pieces.boxes()) for group, pieces in groups.items()}
        digests = self.world.gather(hashlib.sha256(json.dumps(boxes).encode()).hexdigest())
        # ranks with the layout of a lower one hold what that one holds; it is described once
        is_replica = digests[self.world.rank] in digests[: self.world.rank]
        return assign_files(self.world.gather({} if is_replica else boxes))

    def _run_on_main(self, act: Callable[[], None]) -> None:
        run_on_all_ranks(self.world, act if self.world.is_main else lambda: None)

    def _begin(self, temporary: Path) -> None:
        check_no_link(self.folder)
        for debris in self.folder.glob(".tmp-step-*"):  # left by a save in which a rank was killed
            remove_tree(debris)
        temporary.mkdir(parents=True)

    def _write(self, folder: Path, groups: Mapping[str, Pieces], files: Mapping[str, Boxes]) -> _FileInfo:
        if not folder.is_dir():
            raise CheckpointError(
                f"{folder} is visible to rank 0 but not to this rank; all hosts need a shared file system"
            )
        written = {}
        for file, boxes in files.items():
            path = folder / file
            pieces = groups[file.partition(".")[0]]
            tensors = {name: pieces.tensors[name] for name in boxes}
            for name, tensor in tensors.items():
                if list(tensor.shape) != boxes[name]["length"]:
                    raise CheckpointError(f"{name} has shape {tuple(tensor.shape)}, its layout {boxes[name]['length']}")
            save_file(tensors, path)  # into a folder that rank 0 has just created, so it is no link
            path.chmod(folder.stat().st_mode & 0o666)  # by the umask; safetensors lets only the owner read
            _sync(path)
            written[file] = (file_sha256(path), path.stat().st_size)
        return written

    def _finish(
        self, temporary: Path, final: Path, state: Any, pieces: Mapping[str, Boxes], written: Mapping[str, Any]
    ) -> None:
        for name, (_, size) in written.items():
            if not (temporary / name).is_file() or (temporary / name).stat().st_size != size:
                raise CheckpointError(f"{name} is not visible to rank 0; all hosts need a shared file system")
        write_text(temporary / STATE, json.dumps(state, indent=1))
        sums = {name: sha256 for name, (sha256, _) in written.items()} | {STATE: file_sha256(temporary / STATE)}
        write_manifest(temporary, sums, pieces)
        _sync(temporary)

    def _put_in_place(self, temporary: Path, final: Path) -> None:
        """Make a whole checkpoint the newest one, and remove others. `final` exists if this step was saved before."""
        remove_tree(final)
        temporary.rename(final)
        _sync(self.folder)
        self._prune(final)

    def _prune(self, newest: Path) -> None:
        for later in self.paths():  # damaged checkpoints that a resume skipped
            if later.name > newest.name:
                evidence = later.with_name(f"damaged-{later.name}")
                remove_tree(evidence)  # an earlier damaged one of this step
                later.rename(evidence)
        self.prune_before(newest)

    def prune_before(self, newest: Path) -> None:
        """Thin the checkpoints older than `newest`, except protected ones and the last `keep` - 1.

        Of the others one stays for each doubling of the age, so that there is one from before a collapse that is
        found late. A kill during a removal leaves a damaged folder, which a later call removes.
        """
        steps = {_step_of(path): path for path in self.paths() if path.name < newest.name}
        unprotected = [step for step in steps if step not in self.protected]
        oldest = oldest_of_each_age(steps, _step_of(newest))
        for step in unprotected[: max(0, len(unprotected) - self.keep + 1)]:
            if step not in oldest:
                remove_tree(steps[step])

    def path_of(self, step: int) -> Path:
        """Return the folder of a step's checkpoint, whether it exists or not."""
        return self.folder / f"step-{step:09d}"

    def paths(self) -> list[Path]:
        """Return the folders of all complete checkpoints, oldest first.

        A user's copy, such as `step-000000100-copy`, is none, so that nothing removes it.
        """
        return sorted(path for path in self.folder.glob("step-*") if _STEP.fullmatch(path.name) and path.is_dir())

    def newest(self) -> Checkpoint | None:
        """Open the newest checkpoint that rank 0 has verified; None if none exists. Collective."""

        def find() -> str | None:
            return self.read_newest(lambda path: read_checkpoint(path).path.name) if self.world.is_main else None

        name, *_ = run_on_all_ranks(self.world, find)
        if name is None:
            return None
        opened: list[Checkpoint] = []
        run_on_all_ranks(self.world, lambda: opened.append(open_verified(self.folder / name)))
        return opened[0]

    def read_newest(self, read: Callable[[Path], T]) -> T | None:
        """Return what `read` returns for the newest undamaged checkpoint; None if none exists.

        read: raises `CheckpointError` for a damaged one. Raises it if all are damaged.
        """
        for path in reversed(self.paths()):
            try:
                return read(path)
            except NewerFormat:
                raise
            except CheckpointError as error:
                self.log(f"{error}; trying the one before")
        if self.paths():
            raise CheckpointError(f"{self.folder}: all checkpoints are damaged; start anew with --fresh")
        return None


def oldest_of_each_age(steps: Iterable[int], newest: int) -> list[int]:
    """Return the oldest step before `newest` of each age class, oldest first; a class is a power of 2 of the distance.

    Repeated along a run, this leaves one before any step, at most 8 times as far from the newest as that step: one of
    each class is kept, a class spans a factor of 2, and so may the steps between and after two calls.
    """
    by_age: dict[int, int] = {}
    for step in sorted(steps):
        if 0 <= step < newest:  # -1: of a run that has no good step yet
            by_age.setdefault((newest - step).bit_length(), step)
    return sorted(by_age.values())


def _step_of(path: Path) -> int:
    """Return the step of a checkpoint by the name of its folder."""
    return int(path.name.removeprefix("step-"))


def link_checkpoint(checkpoint: Path, folder: Path, omit: str = "") -> None:
    """Link the files of a checkpoint into a new or empty folder, as hard links if possible.

    omit: name of a file that is not part of it. The manifest is last, because it makes a folder valid.
    """
    create_subfolder(folder.parent, folder.name)
    names = sorted(path.name for path in checkpoint.iterdir() if path.name not in (omit, MANIFEST))
    for name in (*names, MANIFEST):
        link_or_copy(checkpoint / name, folder / name)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
