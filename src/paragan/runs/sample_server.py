"""HTTP server of a page with images of a trained generator, reachable from this machine only.

`images?seed=0&num=16&class=3&truncation=0.7&walk=0.5` is a sheet as PNG: each latent is at `walk`, 0
to 1, on the great circle from that of `seed` to that of the next seed.
"""

from __future__ import annotations

import io
import math
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl

from paragan.core.command import program_command
from paragan.core.errors import ConfigError
from paragan.export.sampler import Sampler
from paragan.export.tensor_sampler import refuse_other_inputs
from paragan.game import latents
from paragan.report.record_values import single_line
from paragan.report.rendering import sampler_page
from paragan.runs.report_server import LoopbackHandler, LoopbackServer
from paragan.storage.image_sheet import make_sheet
from paragan.writers.images import to_pil_image

MOST_IMAGES = 64
_TURN_S = 600.0  # longest wait for other requests
_TILE_PX = 64  # images below are enlarged
_LARGEST_SEED = 2**53 - 1  # the largest integer of JavaScript


class SampleServer(LoopbackServer):
    """Server of one generator, which runs for one request at a time.

    Raises `ConfigError` for a generator with other inputs, or if the port is in use.
    """

    def __init__(self, sampler: Sampler, title: str, port: int) -> None:
        refuse_other_inputs(sampler, "serve")
        self.sampler = sampler
        self.running = threading.Lock()
        view = {"title": title, "classes": sampler.class_names, "seed": sampler.seed, "most": MOST_IMAGES}
        self.page, self.policy = sampler_page(view)
        super().__init__(port, _Handler)

    def sheet(self, query: str) -> bytes:
        """Return the images of a query as PNG.

        Raises `ConfigError` for an invalid one, `TimeoutError` if others run for too long.
        """
        values = _values(query)
        num = _number(values, "num", 16, 1, MOST_IMAGES)
        seed = _number(values, "seed", self.sampler.seed, 0, _LARGEST_SEED)
        walk = _fraction(values, "walk") or 0.0
        truncation = _fraction(values, "truncation")
        label = values.get("class")
        with self._turn():
            z_BZ = self.sampler.latents(num, seed, truncation)
            if walk:
                z_BZ = latents.slerp(z_BZ, self.sampler.latents(num, seed + 1, truncation), walk)
            y_B = self.sampler.labels(num, None if label is None else [label], seed, "class")
            made = self.sampler.generate(z_BZ, y_B, seed=seed, truncation=truncation).tensor
        file = io.BytesIO()
        to_pil_image(make_sheet(made, math.ceil(math.sqrt(num)), _TILE_PX)).save(file, "PNG")
        return file.getvalue()

    @contextmanager
    def _turn(self) -> Iterator[None]:
        if not self.running.acquire(timeout=_TURN_S):
            raise TimeoutError(f"other requests took {_TURN_S:g} s")
        try:
            yield
        finally:
            self.running.release()


class _Handler(LoopbackHandler):
    server: SampleServer

    def respond(self, page: str) -> None:
        name, _, query = page.partition("?")
        if not page:
            self.answer(HTTPStatus.OK, "text/html", self.server.page, self.server.policy)
        elif name == "images":
            self._images(query)
        else:
            self.answer(HTTPStatus.NOT_FOUND, "text/plain", "not found; there are / and /images\n")

    def _images(self, query: str) -> None:
        try:
            sheet = self.server.sheet(query)
        except ConfigError as error:
            self.answer(HTTPStatus.BAD_REQUEST, "text/plain", f"{error}\n")
        except Exception as error:  # such as too little memory: another request may succeed
            reason = single_line(f"{type(error).__name__}: {error}")
            print(f"cannot make images: {reason}", file=sys.stderr, flush=True)
            text = f"cannot make images; see the terminal of `{program_command()} serve`\n"
            self.answer(HTTPStatus.INTERNAL_SERVER_ERROR, "text/plain", text)
        else:
            self.answer(HTTPStatus.OK, "image/png", sheet)


def _values(query: str) -> dict[str, str]:
    try:
        pairs = parse_qsl(query, strict_parsing=bool(query), max_num_fields=10)
    except ValueError:
        raise ConfigError("the query is invalid; write name=value&name=value") from None
    values = dict(pairs)
    known = ("seed", "num", "class", "truncation", "walk")
    if len(values) < len(pairs) or not values.keys() <= set(known):
        raise ConfigError(f"the query has an unknown or repeated name; use each of {', '.join(known)} once")
    return values


def _number(values: dict[str, str], name: str, default: int, least: int, most: int) -> int:
    text: Any = values.get(name, default)
    if isinstance(text, int):
        return text
    if not (text.isascii() and text.isdecimal() and len(text) < 20 and least <= int(text) <= most):
        raise ConfigError(f"{name} is invalid; pass an integer from {least} to {most}")
    return int(text)


def _fraction(values: dict[str, str], name: str) -> float | None:
    if name not in values:
        return None
    try:
        value = float(values[name])
    except ValueError:
        value = math.nan
    if not 0 <= value <= 1:
        raise ConfigError(f"{name} is invalid; pass a number from 0 to 1")
    return value
