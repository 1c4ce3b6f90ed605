"""Columns of rows, the data next to what is generated: histograms and correlations. The record is untrusted."""

import math
from collections.abc import Mapping, Sequence
from itertools import combinations

from paragan.report.chart import View
from paragan.report.record_values import finite_or_nan, first_items, single_line, to_mapping, to_natural
from paragan.report.scale import format_number, format_short

WIDTH = 220
HEIGHT = 70
_PARTS = ("data", "generated")
_MAX_COLUMNS = 24  # as `evaluation.column_statistics` writes; a strange record may have more
_MAX_BINS = 48
_MAX_CORRELATED = 12
_SHADES = 8


def columns_section(value: object) -> View | None:
    """Return the values of the template for the columns of the newest samples; None if the record has none.

    columns: of `total`, each with both histograms over the range of the data. correlations: of the data and of what is
    generated, rows of (name, cells of (shade, text)). largest: their largest difference, in words.
    """
    statistics = to_mapping(value)
    read = [_column(to_mapping(entry)) for entry in first_items(statistics.get("columns"), _MAX_COLUMNS)]
    columns = [column for column in read if column is not None]
    if not columns:
        return None
    section = {"columns": columns, "total": to_natural(statistics.get("total")) or len(columns)}
    names = [column["name"] for column in columns[:_MAX_CORRELATED]]
    matrices = [_matrix(rows, len(names)) for rows in first_items(statistics.get("correlations"), len(_PARTS))]
    if len(matrices) < len(_PARTS) or len(names) < 2 or not all(matrices):
        return section | {"correlations": [], "largest": ""}
    tables = [
        (part, [(name, [_cell(value) for value in row]) for name, row in zip(names, matrix, strict=True)])
        for part, matrix in zip(_PARTS, matrices, strict=True)
    ]
    return section | {"correlations": tables, "largest": _largest_difference(names, *matrices)}


def _column(entry: Mapping[str, object]) -> View | None:
    low, high = (finite_or_nan(entry.get(end)) for end in ("low", "high"))
    counts = [[finite_or_nan(count) for count in first_items(entry.get(part), _MAX_BINS)] for part in _PARTS]
    is_valid = all(bins and all(0 <= count < math.inf for count in bins) for bins in counts)
    if not is_valid or len(counts[0]) != len(counts[1]) or not low < high:
        return None
    shares = [[count / (sum(bins) or 1) for count in bins] for bins in counts]
    max_share = max(map(max, shares)) or 1.0
    # mean and deviation of the data, then of what is generated; NaN where the record has none
    moments = [finite_or_nan(number) for number in first_items(entry.get("moments"), limit=4)] + [math.nan] * 4
    outside = finite_or_nan(entry.get("outside"))
    parts = []
    for number, name in enumerate(_PARTS):
        mean, deviation = moments[2 * number : 2 * number + 2]
        text = f"{format_short(mean)} ± {format_short(deviation)}"
        parts.append({"name": name, "points": _outline(shares[number], max_share), "moments": text})
    return {
        "name": single_line(entry.get("name"), max_length=40),
        "low": format_number(low),
        "high": format_number(high),
        "outside": f"{outside:.1%} of generated values are outside" if outside > 0 else "",
        "parts": parts,
    }


def _outline(shares: Sequence[float], max_share: float) -> str:
    step = WIDTH / len(shares)
    corners = [(0.0, float(HEIGHT))]
    for number, share in enumerate(shares):
        y = HEIGHT * (1 - share / max_share)
        corners += [(number * step, y), ((number + 1) * step, y)]
    corners.append((float(WIDTH), float(HEIGHT)))
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in corners)


def _matrix(rows: object, size: int) -> list[list[float]]:
    """Return a square matrix, NaN where there is no number; empty for another value."""
    matrix = [[finite_or_nan(value) for value in first_items(row, size)] for row in first_items(rows, size)]
    return matrix if len(matrix) == size and all(len(row) == size for row in matrix) else []


def _cell(correlation: float) -> tuple[str, str]:
    if math.isnan(correlation):
        return "hx", "–"
    text = f"{round(correlation, 2) or 0.0:.2f}"  # no −0.00
    return f"h{min(_SHADES, round(abs(correlation) * _SHADES))}", text.replace("-", "−")


def _largest_difference(names: list[str], data: list[list[float]], generated: list[list[float]]) -> str:
    """Return the pair of columns whose correlation differs most, in words."""
    pairs = [(abs(data[a][b] - generated[a][b]), a, b) for a, b in combinations(range(len(names)), 2)]
    comparable = [pair for pair in pairs if not math.isnan(pair[0])]
    if not comparable:
        return ""
    _, a, b = max(comparable)
    values = f"{_cell(data[a][b])[1]} in the data, {_cell(generated[a][b])[1]} generated"
    return f"The largest difference is between {names[a]} and {names[b]}: {values}."
