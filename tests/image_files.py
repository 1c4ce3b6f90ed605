"""Image files that Pillow does not write: TIFF of any bands, types and layout, and PNG of 16 bits in colour."""

import struct
import zlib

import numpy as np

_FORMATS = {"u": 1, "i": 2, "f": 3}


def tiff(
    values_HWC,
    *,
    compressed=False,
    predictor=1,
    planar=False,
    rows=None,
    tile=None,
    order="<",
    alpha=False,
    orientation=1,
    rgb=False,
):
    """Return a TIFF file of these values. rows: of a strip. tile: height and width. rgb: of more bands than three."""
    height, width, bands = values_HWC.shape
    planes = np.moveaxis(values_HWC, 2, 0)[..., None] if planar else [values_HWC]
    tile_height, tile_width = tile or (rows or height, width)
    parts = []
    for plane in planes:
        for top in range(0, height, tile_height):
            for left in range(0, width, tile_width):
                part = plane[top : top + tile_height, left : left + tile_width]
                if tile:
                    gaps = (tile_height - part.shape[0], tile_width - part.shape[1])
                    part = np.pad(part, ((0, gaps[0]), (0, gaps[1]), (0, 0)))
                if predictor == 2:
                    part = np.concatenate([part[:, :1], part[:, 1:] - part[:, :-1]], 1)
                content = part.astype(part.dtype.newbyteorder(order)).tobytes()
                parts.append(zlib.compress(content) if compressed else content)
    offsets = np.cumsum([8, *map(len, parts)]).tolist()
    tags = {256: width, 257: height, 258: (values_HWC.dtype.itemsize * 8,) * bands, 277: bands, 317: predictor}
    tags |= {259: 8 if compressed else 1, 262: 2 if rgb or bands - alpha == 3 else 1, 284: 2 if planar else 1}
    tags |= {339: (_FORMATS[values_HWC.dtype.kind],) * bands} | ({338: 2} if alpha else {})
    strips = {273: tuple(offsets[:-1]), 278: tile_height, 279: tuple(map(len, parts))}
    tiles = {322: tile_width, 323: tile_height, 324: strips[273], 325: strips[279]}
    directory, lists = b"", b""
    tags |= tiles if tile else strips
    tags |= {274: orientation}
    place = offsets[-1] + 2 + 12 * len(tags) + 4
    for tag, value in sorted(tags.items()):
        numbers = value if isinstance(value, tuple) else (value,)
        packed = struct.pack(f"{order}{len(numbers)}L", *numbers)
        if len(numbers) > 1:
            packed, lists = struct.pack(f"{order}L", place + len(lists)), lists + packed
        directory += struct.pack(f"{order}HHL", tag, 4, len(numbers)) + packed
    header = (b"II" if order == "<" else b"MM") + struct.pack(f"{order}HL", 42, offsets[-1])
    return header + b"".join(parts) + struct.pack(f"{order}H", len(tags)) + directory + bytes(4) + lists


def png16(values_HWC, transparent=None):
    """Return a PNG of 16 bits: grey, grey with alpha, RGB or RGBA. transparent: a colour."""
    height, width, bands = values_HWC.shape
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in values_HWC)
    header = struct.pack(">IIBBBBB", width, height, 16, {1: 0, 2: 4, 3: 2, 4: 6}[bands], 0, 0, 0)
    colour = () if transparent is None else ((b"tRNS", np.array(transparent, ">u2").tobytes()),)
    chunks = ((b"IHDR", header), *colour, (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    packed = (
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data)) for name, data in chunks
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(packed)
