"""Seeded mutations of bytes, of text and of JSON values."""

import copy
import json
from random import Random
from typing import Any

_NUMBERS = (0, 1, 2, 0x7F, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)

VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2**31, 2**63, -(2**63), 10**400, 0.0, -0.0, 1e308, float("inf"), float("nan")),
    *(
        "",
        " ",
        "null",
        "nan",
        "\x00",
        "\x1b[31m",
        "\ud800",
        "<script>alert(1)</script>",
        "../../etc/passwd",
        "x" * 5000,
    ),
    *([], {}, [[]], [1, "a"], {"a": {"b": []}}, [0] * 1000),
)


def mutate_bytes(draws: Random, data: bytes, most: int = 4) -> bytes:
    """1 to `most` changes: bits, bytes, slices, words that often are lengths."""
    found = bytearray(data)
    for _ in range(draws.randint(1, most)):
        start = draws.randrange(len(found) + 1)
        length = min(draws.choice((1, 2, 4, 16, 64, 1024)), len(found) - start)
        match draws.randrange(8):
            case 0 if found:
                found[draws.randrange(len(found))] ^= 1 << draws.randrange(8)
            case 1:
                found[start : start + length] = draws.randbytes(length)
            case 2:
                del found[start : start + length]
            case 3:
                found[start:start] = draws.randbytes(draws.choice((1, 4, 64)))
            case 4:
                found[start:start] = found[start : start + length] * draws.choice((1, 2, 100))
            case 5:
                del found[start:]
            case 6:
                number = draws.choice(_NUMBERS)
                width = draws.choice((1, 2, 4))
                order = draws.choice(("little", "big"))
                found[start : start + width] = (number % 256**width).to_bytes(width, order)
            case _:
                other = draws.randrange(len(found) + 1)
                piece = found[other : other + length]
                found[start : start + length] = piece
    return bytes(found)


def mutate_text(draws: Random, text: str, tokens: tuple[str, ...]) -> str:
    """Lines dropped, repeated, swapped; tokens put anywhere; a few bytes changed."""
    lines = text.split("\n")
    for _ in range(draws.randint(1, 3)):
        at = draws.randrange(len(lines))
        match draws.randrange(7):
            case 0:
                del lines[at]
                lines = lines or [""]
            case 1:
                lines.insert(at, lines[at])
            case 2:
                other = draws.randrange(len(lines))
                lines[at], lines[other] = lines[other], lines[at]
            case 3:
                key, colon, _ = lines[at].partition(":")
                lines[at] = f"{key}{colon} {draws.choice(tokens)}"
            case 4:
                column = draws.randrange(len(lines[at]) + 1)
                lines[at] = lines[at][:column] + draws.choice(tokens) + lines[at][column:]
            case 5:
                lines[at] = " " * draws.randrange(9) + lines[at].lstrip()
            case _:
                changed = mutate_bytes(draws, lines[at].encode("utf-8", "surrogatepass"), most=1)
                lines[at] = changed.decode("utf-8", "replace")
    return "\n".join(lines)


def mutate_json(draws: Random, value: Any) -> Any:
    """A copy of a JSON value in which one to three entries are replaced, removed, added or moved."""
    found = json.loads(json.dumps(value))
    for _ in range(draws.randint(1, 3)):
        holders = list(_holders(found))
        if not holders:
            return _value(draws)
        holder = draws.choice(holders)
        keys = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
        if not keys:
            continue
        key = draws.choice(keys)
        match draws.randrange(4):
            case 0 | 1:
                holder[key] = _value(draws)
            case 2:
                del holder[key]
            case _ if isinstance(holder, dict):
                holder[_text(_value(draws))] = holder[key]
            case _:
                holder.append(_value(draws))
    return found


def _value(draws: Random) -> Any:
    """A copy: what is inserted may itself be changed by the next mutation."""
    return copy.deepcopy(draws.choice(VALUES))


def _text(value: Any) -> str:
    """A short key. A number of 400 digits has more than 50 characters."""
    return repr(value)[:50]


def dump(value: Any) -> bytes:
    """JSON as a lenient writer makes it: with NaN, huge numbers and lone surrogates."""
    return json.dumps(value).encode("utf-8", "surrogatepass")


def _holders(value: Any) -> list[Any]:
    """All lists and maps inside, this one first."""
    if isinstance(value, dict):
        return [value, *(lower for item in value.values() for lower in _holders(item))]
    if isinstance(value, list):
        return [value, *(lower for item in value for lower in _holders(item))]
    return []
