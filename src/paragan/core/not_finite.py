"""Names of samples with NaN or infinity, for which a network returns NaN, so that every update on them is lost."""

from collections.abc import Callable, Collection, Mapping

import numpy as np
import torch
from torch import Tensor

from paragan.core.errors import DataError
from paragan.core.printable import join_some
from paragan.core.source import Source

CAUSES = "(an empty cell of a table is read as NaN, a number beyond the weights' format as infinity)"
_MAX_NOTED = 1000  # in `source.not_finite`


def rows_not_finite(values_B: Tensor) -> list[int]:
    """Return the rows that have NaN or infinity; whole numbers have none."""
    values_B = torch.view_as_real(values_B) if values_B.is_complex() else values_B
    if not values_B.is_floating_point():
        return []
    narrow = values_B.dtype.itemsize < 4  # formats that NumPy may not have
    # in NumPy, because torch would start native threads for each thread that decodes
    is_finite = np.isfinite((values_B.float() if narrow else values_B).detach().cpu().numpy())
    return [] if is_finite.all() else [row for row, value in enumerate(is_finite) if not value.all()]


def note_not_finite(tensors: Mapping[str, Tensor], source: Source, where: Callable[[int], str]) -> None:
    """Note samples with NaN or infinity in `source.not_finite`; raise `DataError` if that is None.

    where: returns the name of the sample of a row in messages.
    """
    for name, values_B in tensors.items():
        for row in rows_not_finite(values_B):
            text = f"{name} of {where(row)}"
            if source.not_finite is None:
                raise DataError(not_finite_message([text], argument=source.argument))
            if len(source.not_finite) < _MAX_NOTED:
                source.not_finite[text] = None


def not_finite_message(names: Collection[str], effect: str = "", argument: str = "data") -> str:
    """Return the line about samples with NaN or infinity. effect: what follows, after "is not finite"."""
    return f"{argument}: {join_some(sorted(names))} is not finite{effect}; leave it out or replace the values {CAUSES}"


def finite_tensors(
    tensors: Mapping[str, Tensor], source: Source, where: Callable[[int], str] | None = None
) -> dict[str, Tensor]:
    """Return tensors for trials and sample sheets: of a run that notes samples with NaN or infinity, 0 in their place.

    Raises `DataError` for such a sample where none are noted. where: as in `note_not_finite`.
    """
    if source.not_finite is None:  # else the run notes a sample when it trains on it
        note_not_finite(tensors, source, where or source.where)
        return dict(tensors)
    return {name: value.nan_to_num(0, 0, 0) if rows_not_finite(value) else value for name, value in tensors.items()}
