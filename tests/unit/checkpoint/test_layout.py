"""Boxes of tensors: cut as torch cuts, put together from any set."""

import itertools

import pytest
import torch

from paragan.checkpoint.manifest import read_manifest
from paragan.checkpoint.writer import CheckpointWriter
from paragan.core.layout import Pieces, TensorLayout, describe_gaps


@pytest.mark.parametrize("of", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("rows", [0, 1, 2, 5, 6, 8])
def test_rows_are_cut_as_chunk_does_and_the_rest_is_empty(rows, of):
    whole = torch.arange(rows * 2).view(rows, 2)
    boxes = [TensorLayout.rows(whole.shape, index, of) for index in range(of)]
    pieces = [box.cut(whole) for box in boxes]
    chunks = whole.chunk(of) if rows else ()
    assert all(torch.equal(piece, chunk) for piece, chunk in zip(pieces, chunks, strict=False))
    assert all(len(piece) == 0 for piece in pieces[len(chunks) :])
    assert torch.equal(torch.cat(pieces), whole)
    assert describe_gaps(boxes) == ""


def test_rows_of_a_number_are_the_number():
    assert TensorLayout.rows((), 1, 2).cut(torch.tensor(3.0)) == 3


def test_cut_is_a_view():
    whole = torch.zeros(4, 6)
    TensorLayout((4, 6), (1, 2), (2, 3)).cut(whole).fill_(1)
    assert whole.sum() == 6
    assert whole[1:3, 2:5].sum() == 6


def grid(shape: tuple[int, ...], cuts: tuple[int, ...]) -> list[TensorLayout]:
    """Boxes that cut every axis into so many parts."""
    axes = [TensorLayout.rows((size,), 0, 1) for size in shape]
    parts = [
        [TensorLayout.rows(axis.shape, index, of) for index in range(of)] for axis, of in zip(axes, cuts, strict=True)
    ]
    return [
        TensorLayout(shape, tuple(p.offset[0] for p in box), tuple(p.length[0] for p in box))
        for box in itertools.product(*parts)
    ]


@pytest.mark.parametrize(("shape", "cuts"), [((5, 7), (2, 3)), ((6,), (4,)), ((3, 4, 5), (1, 4, 2)), ((), ())])
def test_describe_gaps_finds_every_missing_and_doubled_box(shape, cuts):
    boxes = grid(shape, cuts)
    assert describe_gaps(boxes) == ""
    for number, box in enumerate(boxes):
        if len(boxes) > 1 and not box.is_empty:
            assert describe_gaps(boxes[:number] + boxes[number + 1 :]) == "pieces are missing"
        if not box.is_empty:
            assert describe_gaps([*boxes, box]) == "pieces overlap"


@pytest.mark.parametrize(
    "box",
    [
        TensorLayout((4,), (0,), (5,)),
        TensorLayout((4,), (-1,), (2,)),
        TensorLayout((4,), (3,), (-1,)),
        TensorLayout((4,), (0, 0), (4,)),
        TensorLayout((5,), (2,), (2,)),
    ],
)
def test_describe_gaps_refuses_boxes_outside_the_tensor_or_of_another(box):
    assert describe_gaps([TensorLayout((4,), (0,), (2,)), box]) == "pieces do not fit together"


def test_overlap_is_the_common_box():
    one, other = TensorLayout((4, 6), (0, 2), (3, 3)), TensorLayout((4, 6), (2, 0), (2, 4))
    common = TensorLayout((4, 6), (2, 2), (1, 2))
    assert one.overlap(other) == other.overlap(one) == common
    whole = torch.arange(24).view(4, 6)
    assert torch.equal(one.cut(whole)[common.within(one)], common.cut(whole))
    assert one.overlap(TensorLayout((4, 6), (3, 0), (1, 6))) is None


@pytest.mark.parametrize("stage", [None, 0, 1])
def test_manifest_of_a_checkpoint_says_which_stage_has_a_tensor(stage, tmp_path):
    box = TensorLayout((2, 3), (0, 0), (2, 3), stage)
    pieces = Pieces({"net/w": torch.zeros(2, 3)}, {"net/w": box})
    path = CheckpointWriter(folder=tmp_path).save(1, {"g": pieces}, {})
    assert read_manifest(path).groups["g"]["g.safetensors"]["net/w"] == box
