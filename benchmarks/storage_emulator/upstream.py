"""Where the proxy's responses come from: files of a folder, or another server on the loopback interface."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit

_HEAD_LIMIT = 1 << 16
_TIMEOUT_S = 60
_PASSED_ON = ("content-range", "last-modified", "etag", "content-type", "accept-ranges")


@dataclass(frozen=True)
class Request:
    """A request; names of headers are in lower case."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes = b""

    @property
    def key(self) -> str:
        """What makes two requests equal."""
        return f"{self.method} {self.target} {self.headers.get('range', '')}"


@dataclass(frozen=True)
class Response:
    """A response. num_bytes: the declared length, that of the body by default (another for HEAD)."""

    status: int
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    num_bytes: int | None = None


Upstream = Callable[[Request], Awaitable[Response]]


def read_files(folder: Path) -> Upstream:
    """Answer GET and HEAD from the files of a folder, with byte ranges."""

    async def answer(request: Request) -> Response:
        path = folder / unquote(urlsplit(request.target).path).lstrip("/")
        if ".." in path.parts or not path.is_file():
            return Response(404, b"no such file")
        size = path.stat().st_size
        common = {"Accept-Ranges": "bytes", "ETag": f'"{size}"', "Last-Modified": "Mon, 01 Jan 2024 00:00:00 GMT"}
        if request.method == "HEAD":
            return Response(200, b"", common, size)
        requested = re.fullmatch(r"bytes=(\d+)-(\d+)", request.headers.get("range", ""))
        if requested is None:
            return Response(200, path.read_bytes(), common)
        start = int(requested[1])
        stop = min(int(requested[2]) + 1, size)
        if start >= stop:
            return Response(416, b"", {"Content-Range": f"bytes */{size}"})
        with path.open("rb") as file:
            file.seek(start)
            body = file.read(stop - start)
        return Response(206, body, common | {"Content-Range": f"bytes {start}-{stop - 1}/{size}"})

    return answer


def forward(url: str) -> Upstream:
    """Send requests on to an http server, one connection each."""
    place = urlsplit(url)

    async def answer(request: Request) -> Response:
        reader, writer = await asyncio.open_connection(place.hostname, place.port)
        try:
            headers = request.headers | {"connection": "close"}
            lines = [f"{request.method} {request.target} HTTP/1.1", *(f"{k}: {v}" for k, v in headers.items())]
            writer.write("\r\n".join([*lines, "", ""]).encode() + request.body)
            status, found = await asyncio.wait_for(read_head(reader), _TIMEOUT_S)
            declared = found.get("content-length")
            body = b""
            if request.method != "HEAD":
                rest = reader.readexactly(int(declared)) if declared else reader.read()
                body = await asyncio.wait_for(rest, _TIMEOUT_S)
        finally:
            writer.close()
        passed = {name: value for name, value in found.items() if name in _PASSED_ON}
        return Response(int(status.split()[1]), body, passed, int(declared) if declared else None)

    return answer


async def read_head(reader: asyncio.StreamReader) -> tuple[str, dict[str, str]]:
    """Read the first line and the headers of a message."""
    head = await reader.readuntil(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    pairs = [line.partition(":") for line in lines if line]
    return first, {name.lower(): value.strip() for name, _, value in pairs}
