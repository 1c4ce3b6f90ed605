"""Checkpoints on disk: one file or several pieces per group."""

import hashlib
import itertools
import json
import os

import pytest
import torch
from safetensors.torch import save_file

from paragan.checkpoint import reader
from paragan.checkpoint.manifest import FORMAT
from paragan.checkpoint.reader import open_verified, read_checkpoint
from paragan.checkpoint.writer import CheckpointWriter
from paragan.core.errors import CheckpointError
from paragan.core.layout import Pieces, TensorLayout

WHOLE = torch.arange(10.0).view(5, 2)
BOXES = {  # of w, by file: three boxes that share no edge
    "g.0-of-3.safetensors": TensorLayout((5, 2), (0, 0), (3, 2)),
    "g.1-of-3.safetensors": TensorLayout((5, 2), (3, 0), (2, 1)),
    "g.2-of-3.safetensors": TensorLayout((5, 2), (3, 1), (2, 1)),
}


@pytest.fixture
def cut(tmp_path):
    """A checkpoint in three pieces, put together by hand."""
    path = tmp_path / "step-000000001"
    path.mkdir()
    pieces = {}
    for name, box in BOXES.items():
        one = {"net/one": torch.tensor(1.0)} if name.startswith("g.0") else {}
        save_file({"net/w": box.cut(WHOLE).contiguous(), **one}, path / name)
        pieces[name] = {"net/w": vars(box)} | {name: vars(TensorLayout.whole(())) for name in one}
    (path / "state.json").write_text(json.dumps({"step": 1, "values": {}}))
    sign(path, pieces)
    return path


def sign(path, pieces=None):
    """Write a manifest that agrees with the files; the pieces stay as they were, but for files that are missing."""
    names = [p for p in path.iterdir() if p.name != "manifest.json"]
    sums = {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in names}
    pieces = pieces or manifest_of(path)["pieces"]
    (path / "manifest.json").write_text(json.dumps({"format": FORMAT, "files": sums, "pieces": pieces}))


def manifest_of(path):
    return json.loads((path / "manifest.json").read_text())


def test_reader_assembles_a_tensor_from_boxes(cut):
    stored = read_checkpoint(cut).groups["g"]
    assert stored.shapes == {"net/w": (5, 2), "net/one": ()}
    assert torch.equal(stored["net/w"], WHOLE)
    assert stored["net/one"] == 1


@pytest.mark.parametrize("rows", range(5))
@pytest.mark.parametrize("columns", range(2))
def test_reader_reads_any_box(cut, rows, columns):
    stored = read_checkpoint(cut).groups["g"]
    for height, width in itertools.product(range(6 - rows), range(3 - columns)):
        box = TensorLayout((5, 2), (rows, columns), (height, width))
        assert torch.equal(stored.read("net/w", box), box.cut(WHOLE))


class CountedFile:
    """A file that counts the numbers read of it."""

    def __init__(self, file, counts):
        self.file, self.counts = file, counts

    def keys(self):
        return self.file.keys()

    def get_tensor(self, name):
        value = self.file.get_tensor(name)
        self.counts.append(value.numel())
        return value

    def get_slice(self, name):
        return CountedSlice(self.file.get_slice(name), self.counts)


class CountedSlice(CountedFile):
    def get_shape(self):
        return self.file.get_shape()

    def __getitem__(self, index):
        value = self.file[index]
        self.counts.append(value.numel())
        return value


def test_reader_reads_nothing_outside_the_box(cut, monkeypatch):
    counts = []
    opened = reader.safe_open
    monkeypatch.setattr(reader, "safe_open", lambda path, kind: CountedFile(opened(path, kind), counts))
    stored = read_checkpoint(cut).groups["g"]
    stored.read("net/w", TensorLayout((5, 2), (2, 1), (2, 1)))
    assert sum(counts) == 2


def overlap(path):
    pieces = manifest_of(path)["pieces"]
    pieces["g.2-of-3.safetensors"]["net/w"]["offset"] = [3, 0]
    sign(path, pieces)


def replace_piece(tensor):
    return lambda path: (save_file({"net/w": tensor}, path / "g.1-of-3.safetensors"), sign(path))


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda path: ((path / "g.1-of-3.safetensors").unlink(), sign(path)), r"g: net/w: pieces are missing \(files"),
        (overlap, r"g: net/w: pieces overlap \(files: g\.0-of-3"),
        (replace_piece(torch.zeros(2, 3)), r"g\.1-of-3\.safetensors: its tensors are not those that the manifest"),
        (
            replace_piece(torch.zeros(2, 1, dtype=torch.int32)),
            r"net/w cannot be read \(pieces of torch\.float32 and torch\.int32\)",
        ),
    ],
    ids=["missing", "overlapping", "shape", "dtype"],
)
def test_reader_pieces_that_do_not_fit_are_refused(cut, spoil, message):
    spoil(cut)
    with pytest.raises(CheckpointError, match=message):
        _ = read_checkpoint(cut).groups["g"]["net/w"]


def test_reader_only_one_group_ignores_other_files(tmp_path):
    tensors = Pieces({"net/w": torch.zeros(2)})
    path = CheckpointWriter(folder=tmp_path).save(1, {"g": tensors, "d": tensors}, {})
    (path / "d.safetensors").unlink()
    assert list(read_checkpoint(path, only="g").groups) == ["g"]
    with pytest.raises(CheckpointError, match=r"d\.safetensors is missing or damaged"):
        read_checkpoint(path)


def test_reader_only_absent_group_is_refused(tmp_path):
    path = CheckpointWriter(folder=tmp_path).save(1, {"d": Pieces({"net/w": torch.zeros(2)})}, {})
    with pytest.raises(CheckpointError, match=r"g\.safetensors is missing or damaged \(not in the manifest\)"):
        read_checkpoint(path, only="g")


@pytest.mark.parametrize("replace", [None, os.mkdir, os.mkfifo], ids=["missing", "folder", "pipe"])
def test_a_file_that_cannot_be_read_is_not_called_another_format(tmp_path, replace):
    pieces = {"g": Pieces({"net/w": torch.zeros(3)})}
    path = CheckpointWriter(folder=tmp_path).save(1, pieces, {})
    (path / "g.safetensors").unlink()
    if replace is not None:
        replace(path / "g.safetensors")
    with pytest.raises(CheckpointError, match="cannot be read"):
        open_verified(path)
