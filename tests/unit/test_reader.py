"""What a checkpoint may look like on disk: one file or pieces for a group, of this format or of the first."""

from __future__ import annotations

import hashlib
import json

import pytest
import torch
from safetensors.torch import save_file

from paragan.checkpoint.reader import read_checkpoint
from paragan.checkpoint.writer import CheckpointWriter
from paragan.core.errors import CheckpointError
from paragan.core.pieces import Pieces
from paragan.core.window import Window


def test_a_checkpoint_of_format_1_is_read(tmp_path):
    """As it was written before there were pieces."""
    path = tmp_path / "step-000000004"
    path.mkdir()
    save_file({"net/w": torch.arange(6.0).view(3, 2)}, path / "g.safetensors")
    (path / "state.json").write_text(json.dumps({"step": 4, "values": {"position": 7}}))
    sums = {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in path.iterdir()}
    (path / "manifest.json").write_text(json.dumps({"format": 1, "files": sums}))
    found = CheckpointWriter(tmp_path).newest()
    assert (found.step, found.values, list(found.groups)) == (4, {"position": 7}, ["g"])
    assert torch.equal(found.groups["g"]["net/w"], torch.arange(6.0).view(3, 2))


def pieces_of(index: int, of: int, rows: int = 5) -> Pieces:
    window = Window(index, of)
    tensors = {"net/w": window.cut(torch.arange(2.0 * rows).view(rows, 2)), "net/one": torch.tensor(1.0)}
    return Pieces(tensors, frozenset({"net/w"}), window)


@pytest.fixture
def cut(tmp_path):
    """A checkpoint in three pieces of 5 rows, put together by hand."""
    path = tmp_path / "step-000000001"
    path.mkdir()
    for index in range(3):
        save_file(dict(pieces_of(index, 3).mine), path / f"g.{index}-of-3.safetensors")
    (path / "state.json").write_text(json.dumps({"step": 1, "values": {}}))
    sign(path)
    return path


def sign(path):
    names = [p for p in path.iterdir() if p.name != "manifest.json"]
    sums = {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in names}
    (path / "manifest.json").write_text(json.dumps({"format": 2, "files": sums}))


def test_pieces_are_joined_when_they_are_read(cut):
    stored = read_checkpoint(cut).groups["g"]
    assert stored.shapes == {"net/w": (5, 2), "net/one": ()}
    assert torch.equal(stored["net/w"], torch.arange(10.0).view(5, 2))
    assert stored["net/one"] == 1


def test_a_lacking_piece_is_named_even_under_a_matching_manifest(cut):
    (cut / "g.1-of-3.safetensors").unlink()
    sign(cut)
    with pytest.raises(CheckpointError, match=r"g: found the files g\.0-of-3.*, expected all pieces of one cut"):
        read_checkpoint(cut)


def test_pieces_that_do_not_fit_are_refused(cut):
    save_file({"net/w": torch.zeros(2, 3)}, cut / "g.1-of-3.safetensors")
    sign(cut)
    with pytest.raises(CheckpointError, match=r"net/w: found a piece of shape \(2, 3\) after \(2, 2\)"):
        read_checkpoint(cut)


def test_one_group_is_read_without_the_files_of_the_others(tmp_path):
    tensors = Pieces({"net/w": torch.zeros(2)})
    path = CheckpointWriter(tmp_path).save(1, {"g": tensors, "d": tensors}, {})
    (path / "d.safetensors").unlink()
    assert list(read_checkpoint(path, only="g").groups) == ["g"]
    with pytest.raises(CheckpointError, match=r"d\.safetensors is missing or damaged"):
        read_checkpoint(path)


def test_a_checkpoint_without_the_group_is_refused(tmp_path):
    path = CheckpointWriter(tmp_path).save(1, {"d": Pieces({"net/w": torch.zeros(2)})}, {})
    with pytest.raises(CheckpointError, match=r"g\.safetensors is missing or damaged \(not in the manifest\)"):
        read_checkpoint(path, only="g")
