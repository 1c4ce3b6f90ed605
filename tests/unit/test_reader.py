"""Checkpoints on disk: one file or several shards per group."""

from __future__ import annotations

import hashlib
import json

import pytest
import torch
from safetensors.torch import save_file

from paragan.checkpoint.reader import FORMAT, read_checkpoint
from paragan.checkpoint.writer import CheckpointWriter
from paragan.core.errors import CheckpointError
from paragan.core.pieces import Pieces
from paragan.core.window import Window


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
    (path / "manifest.json").write_text(json.dumps({"format": FORMAT, "files": sums}))


def test_reader_sharded_group_is_concatenated(cut):
    stored = read_checkpoint(cut).groups["g"]
    assert stored.shapes == {"net/w": (5, 2), "net/one": ()}
    assert torch.equal(stored["net/w"], torch.arange(10.0).view(5, 2))
    assert stored["net/one"] == 1


def test_reader_missing_shard_under_valid_manifest_is_refused(cut):
    (cut / "g.1-of-3.safetensors").unlink()
    sign(cut)
    with pytest.raises(CheckpointError, match=r"g: shards are missing .*g\.0-of-3"):
        read_checkpoint(cut)


def test_reader_shards_of_unequal_shape_are_refused(cut):
    save_file({"net/w": torch.zeros(2, 3)}, cut / "g.1-of-3.safetensors")
    sign(cut)
    with pytest.raises(CheckpointError, match=r"net/w: a shard of shape \(2, 3\) does not fit the shape \(2, 2\)"):
        read_checkpoint(cut)


def test_reader_only_one_group_ignores_other_files(tmp_path):
    tensors = Pieces({"net/w": torch.zeros(2)})
    path = CheckpointWriter(tmp_path).save(1, {"g": tensors, "d": tensors}, {})
    (path / "d.safetensors").unlink()
    assert list(read_checkpoint(path, only="g").groups) == ["g"]
    with pytest.raises(CheckpointError, match=r"d\.safetensors is missing or damaged"):
        read_checkpoint(path)


def test_reader_only_absent_group_is_refused(tmp_path):
    path = CheckpointWriter(tmp_path).save(1, {"d": Pieces({"net/w": torch.zeros(2)})}, {})
    with pytest.raises(CheckpointError, match=r"g\.safetensors is missing or damaged \(not in the manifest\)"):
        read_checkpoint(path, only="g")
