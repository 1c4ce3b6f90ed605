"""Pieces are cut as torch cuts, and what is stored is read when it is asked for."""

from __future__ import annotations

import pytest
import torch

from paragan.core.pieces import Pieces, StoredTensors
from paragan.core.window import Window


@pytest.mark.parametrize("of", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("rows", [0, 1, 5, 6, 8])
def test_windows_cut_as_chunk_does_and_the_rest_is_empty(rows, of):
    whole = torch.arange(rows * 2).view(rows, 2)
    pieces = [Window(index, of).cut(whole) for index in range(of)]
    chunks = whole.chunk(of) if rows else ()
    assert all(torch.equal(piece, chunk) for piece, chunk in zip(pieces, chunks, strict=False))
    assert all(len(piece) == 0 for piece in pieces[len(chunks) :])
    assert torch.equal(torch.cat(pieces), whole)


def test_a_number_is_not_cut():
    assert Window(1, 2).cut(torch.tensor(3.0)) == 3


@pytest.mark.parametrize(("index", "names"), [(0, {"w", "u"}), (1, {"w"})])
def test_what_is_whole_goes_with_the_first_piece(index, names):
    pieces = Pieces({"w": torch.zeros(1), "u": torch.zeros(2)}, frozenset({"w"}), Window(index, 2))
    assert pieces.mine.keys() == names


def test_stored_tensors_are_read_one_at_a_time():
    asked = []
    stored = StoredTensors(
        {"net/a": (2,), "net/b": (), "ema/a": (2,)}, lambda name: asked.append(name) or torch.zeros(2)
    )
    under = stored.under("net/")
    assert (dict(under.shapes), len(under), "a" in under, "net/a" in under) == ({"a": (2,), "b": ()}, 2, True, False)
    assert bool(stored.under("none/")) is False
    assert asked == []
    assert under["a"].shape == (2,) and asked == ["net/a"]
    with pytest.raises(KeyError):
        under["c"]
