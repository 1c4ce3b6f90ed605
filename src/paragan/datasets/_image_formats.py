"""Formats of images: by the first bytes of a file, and by its extension where that is enough."""

from __future__ import annotations

from collections.abc import Callable

START_BYTES = 16  # which show the format
_IMAGE_EXTENSIONS = tuple(
    b".png .apng .jpg .jpeg .jpe .jfif .webp .bmp .dib .gif .tif .tiff "
    b".ppm .pgm .pbm .pnm .avif .jp2 .j2k .jpx .heic .heif".split()
)
# Frequent next to images; not opened to see what they are. Raw photos begin like TIFF, with a thumbnail.
_OTHER_EXTENSIONS = tuple(
    b".txt .json .jsonl .csv .tsv .xml .yaml .yml .cls .caption .npy .npz .md "
    b".zip .tar .tgz .gz .xz .bz2 .zst .7z .rar .parquet .arrow .html .pdf "
    b".mp4 .mov .avi .mkv .webm .wav .mp3 .flac .ogg .mat .h5 .hdf5 .db "
    b".dng .nef .cr2 .arw .orf .rw2 .pef .py .pt .pth .pkl .ini .log".split()
)
_SUFFIX_OF_START = {b"\x89PNG\r\n\x1a\n": ".png", b"\xff\xd8\xff": ".jpg", b"GIF8": ".gif"}
_SUFFIX_OF_START |= dict.fromkeys((b"II*\0", b"MM\0*", b"II+\0", b"MM\0+"), ".tif")
_SUFFIX_OF_START |= {b"\0\0\0\x0cjP  \r\n\x87\n": ".jp2", b"\xff\x4f\xff\x51": ".j2k"}
_HEIC_BRANDS = frozenset(b"heic heix heim heis hevc hevx mif1 msf1".split())
# Pillow's names by suffix
FORMATS = {".png": "PNG", ".jpg": "JPEG", ".webp": "WEBP", ".bmp": "BMP", ".gif": "GIF", ".tif": "TIFF"}
FORMATS |= {".ppm": "PPM", ".avif": "AVIF", ".jp2": "JPEG2000", ".j2k": "JPEG2000", ".heic": "HEIF"}


def image_suffix(start: bytes) -> str | None:
    """Return the usual suffix of an image format by the first `START_BYTES` of a file; None for others."""
    if start[:4] == b"RIFF" and start[8:12] == b"WEBP":
        return ".webp"
    if start[4:8] == b"ftyp":
        if b"avif" in start[8:64] or start[8:12] == b"avis":
            return ".avif"
        return ".heic" if start[8:12] in _HEIC_BRANDS else None
    if start[:1] == b"P" and start[1:2] in b"123456" and start[2:3].isspace():
        return ".ppm"
    if start[:2] == b"BM" and start[6:10] == bytes(4):
        return ".bmp"
    return next((suffix for begin, suffix in _SUFFIX_OF_START.items() if start.startswith(begin)), None)


def is_image_file(name: bytes, read_start: Callable[[], bytes]) -> bool:
    """Return whether a file is read as an image, by its extension.

    read_start: returns the first `START_BYTES`, which decide if the extension is unknown or missing. A
    file with the extension of an image is one whatever it holds: it may be damaged.
    """
    if has_image_extension(name):
        return True
    return not name.lower().endswith(_OTHER_EXTENSIONS) and image_suffix(read_start()) is not None


def has_image_extension(name: bytes) -> bool:
    """Return whether a file has the extension of an image."""
    return name.lower().endswith(_IMAGE_EXTENSIONS)


def kind_of_file(name: bytes) -> str:
    """Return the kind of a file that is not read: its extension, for counts."""
    stem, dot, extension = name.rpartition(b"/")[2].rpartition(b".")
    return f".{extension.decode('utf-8', 'replace').lower()}" if stem and dot else "without extension"
