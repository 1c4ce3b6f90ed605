"""A plain torch loop over plain networks, which the libraries for several devices wrap."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from benchmarks.compare.works import Prepared, case
from benchmarks.step_loop import Wrap, labelled, unwrapped


def plain(
    work: str, version: str, wrap: Wrap = unwrapped, backward: Callable[[Tensor], object] = Tensor.backward
) -> Prepared:
    """Return the loop of `benchmarks.step_loop` on the networks of `benchmarks.step_nets`."""
    of = case(work)
    networks, real = of.nets(), of.real()
    assert real.label is not None
    return Prepared(labelled(*networks, real.image, real.label, 128, wrap, backward), networks, version)
