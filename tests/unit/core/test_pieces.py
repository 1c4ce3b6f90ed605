"""Pieces of a rank, and stored tensors that are read on access."""

import pytest
import torch

from paragan.core.layout import Pieces, StoredTensors, TensorLayout


@pytest.mark.parametrize(("index", "names"), [(0, {"w", "one"}), (1, {"w", "one"}), (3, {"one"})])
def test_boxes_of_pieces_leave_out_empty_ones(index, names):
    box = TensorLayout.rows((6, 2), index, 4)
    pieces = Pieces({"w": torch.zeros(box.length), "one": torch.zeros(())}, {"w": box})
    assert pieces.boxes().keys() == names
    assert pieces.boxes().get("w", box) is box
    assert pieces.boxes()["one"].is_whole


def test_stored_tensors_are_read_one_at_a_time():
    asked = []
    stored = StoredTensors(
        {"net/a": (2,), "net/b": (), "ema/a": (2,)}, lambda name, box: asked.append(name) or torch.zeros(box.length)
    )
    under = stored.under("net/")
    assert (dict(under.shapes), len(under), "a" in under, "net/a" in under) == ({"a": (2,), "b": ()}, 2, True, False)
    assert bool(stored.under("none/")) is False
    assert asked == []
    assert under["a"].shape == (2,) and asked == ["net/a"]
    assert under.read("a", TensorLayout((2,), (1,), (1,))).shape == (1,)
    with pytest.raises(KeyError):
        under["c"]
