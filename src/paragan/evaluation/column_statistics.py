"""Statistics of the columns of rows, real next to generated: histograms, means and correlations."""

from collections.abc import Sequence
from typing import TypedDict

import torch
from torch import Tensor

_BINS = 24  # of a histogram
_MAX_COLUMNS = 24  # a page of small charts; more cannot be read
_MAX_CORRELATED = 12  # a matrix whose numbers can be read
_DIGITS = 4  # of a number in the record


class ColumnStatistics(TypedDict):
    """One column. data, generated: counts in equal bins from low to high, the range of the data.

    moments: mean and standard deviation of the data, and of what is generated. outside: share of the
    generated values that are below low, above high or not finite.
    """

    name: str
    low: float
    high: float
    data: list[int]
    generated: list[int]
    moments: list[float | None]
    outside: float


class RowStatistics(TypedDict):
    """Columns, the first 24; total: their number. correlations: of the first 12 columns, data and generated."""

    total: int
    columns: list[ColumnStatistics]
    correlations: list[list[list[float | None]]]


def row_statistics(real_NK: Tensor, generated_NK: Tensor, names: Sequence[str] = ()) -> RowStatistics:
    """Compare rows of K columns. names: of the columns; `column 1` where one is missing."""
    real_NM, generated_NM = (table_NK[:, :_MAX_COLUMNS].detach().cpu().double() for table_NK in (real_NK, generated_NK))
    columns = []
    for number in range(real_NM.shape[1]):
        name = names[number] if number < len(names) else f"column {number + 1}"
        columns.append(_column(name, real_NM[:, number], generated_NM[:, number]))
    correlations = [_correlations(real_NM), _correlations(generated_NM)]
    return RowStatistics(total=real_NK.shape[1], columns=columns, correlations=correlations)


def _column(name: str, real_N: Tensor, generated_N: Tensor) -> ColumnStatistics:
    low, high = (float(value) for value in real_N.aminmax())
    if low == high:  # a constant is in the middle
        half = max(0.5, abs(low) / 100)
        low, high = low - half, high + half
    finite_N = generated_N[generated_N.isfinite()]
    inside_N = finite_N[(finite_N >= low) & (finite_N <= high)]
    moments = (real_N.mean(), _deviation(real_N), finite_N.mean(), _deviation(finite_N))
    return ColumnStatistics(
        name=name,
        low=low,
        high=high,
        data=_counts(real_N, low, high),
        generated=_counts(inside_N, low, high),
        moments=[_rounded(value) for value in moments],
        outside=round(1 - len(inside_N) / len(generated_N), _DIGITS),
    )


def _deviation(x_N: Tensor) -> Tensor:
    return (x_N - x_N.mean()).square().mean().sqrt()


def _counts(values_N: Tensor, low: float, high: float) -> list[int]:
    places_N = ((values_N - low) / (high - low) * _BINS).long().clamp(0, _BINS - 1)
    return torch.bincount(places_N, minlength=_BINS).tolist()


def _correlations(table_NK: Tensor) -> list[list[float | None]]:
    """Return Pearson's coefficients; None for a constant column."""
    finite_NM = table_NK[table_NK.isfinite().all(1), :_MAX_CORRELATED]
    if len(finite_NM) < 2 or finite_NM.shape[1] < 2:
        return []
    # A constant column has a deviation too: the rounding of its mean.
    is_constant_M = finite_NM.std(0) <= 1e-9 * finite_NM.abs().amax(0)
    matrix_MM = torch.corrcoef(finite_NM.T)
    matrix_MM[is_constant_M] = torch.nan
    matrix_MM[:, is_constant_M] = torch.nan
    return [[_rounded(value) for value in row] for row in matrix_MM]


def _rounded(value: Tensor) -> float | None:
    return float(f"{float(value):.{_DIGITS}g}") if value.isfinite() else None
