"""Formats of images: by the first bytes of a file, and by its extension where that is enough."""

from __future__ import annotations

from collections.abc import Callable

START_BYTES = 16  # which show the format
EXTENSIONS = (
    *(".png", ".apng", ".jpg", ".jpeg", ".jpe", ".jfif", ".webp", ".bmp", ".dib", ".gif", ".tif", ".tiff"),
    *(".ppm", ".pgm", ".pbm", ".pnm", ".avif", ".jp2", ".j2k", ".jpx", ".heic", ".heif"),
)
# Frequent next to images; not opened to see what they are. Raw photos begin like TIFF, with a thumbnail.
_OTHER_EXTENSIONS = (
    *(".txt", ".json", ".jsonl", ".csv", ".tsv", ".xml", ".yaml", ".yml", ".cls", ".caption", ".npy", ".npz", ".md"),
    *(".zip", ".tar", ".tgz", ".gz", ".xz", ".bz2", ".zst", ".7z", ".rar", ".parquet", ".arrow", ".html", ".pdf"),
    *(".mp4", ".mov", ".avi", ".mkv", ".webm", ".wav", ".mp3", ".flac", ".ogg", ".mat", ".h5", ".hdf5", ".db"),
    *(".dng", ".nef", ".cr2", ".arw", ".orf", ".rw2", ".pef", ".py", ".pt", ".pth", ".pkl", ".ini", ".log"),
)
_EXTENSIONS = tuple(extension.encode() for extension in EXTENSIONS)
_NOT_IMAGES = tuple(extension.encode() for extension in _OTHER_EXTENSIONS)
_STARTS = (
    *((b"\x89PNG\r\n\x1a\n", ".png"), (b"\xff\xd8\xff", ".jpg"), (b"GIF8", ".gif")),
    *((b"II*\0", ".tif"), (b"MM\0*", ".tif"), (b"II+\0", ".tif"), (b"MM\0+", ".tif")),
    *((b"\0\0\0\x0cjP  \r\n\x87\n", ".jp2"), (b"\xff\x4f\xff\x51", ".j2k")),
)
_BRANDS = {b"avis": ".avif"} | {b"hei" + end: ".heic" for end in (b"c", b"x", b"m", b"s")}
_BRANDS |= dict.fromkeys((b"hevc", b"hevx", b"mif1", b"msf1"), ".heic")
FORMATS = {  # Pillow's names by suffix
    **{".png": "PNG", ".jpg": "JPEG", ".webp": "WEBP", ".bmp": "BMP", ".gif": "GIF", ".tif": "TIFF", ".ppm": "PPM"},
    **{".avif": "AVIF", ".jp2": "JPEG2000", ".j2k": "JPEG2000", ".heic": "HEIF"},
}


def image_suffix(start: bytes) -> str | None:
    """Return the usual suffix of an image format by the first `START_BYTES` of a file; None for others."""
    if start[:4] == b"RIFF" and start[8:12] == b"WEBP":
        return ".webp"
    if start[4:8] == b"ftyp":
        return ".avif" if b"avif" in start[8:64] else _BRANDS.get(start[8:12])
    if start[:1] == b"P" and start[1:2] in b"123456" and start[2:3].isspace():
        return ".ppm"
    if start[:2] == b"BM" and start[6:10] == bytes(4):
        return ".bmp"
    return next((suffix for begin, suffix in _STARTS if start.startswith(begin)), None)


def is_image_file(name: bytes, read_start: Callable[[], bytes]) -> bool:
    """Return whether a file is read as an image, by its extension.

    read_start: returns the first `START_BYTES`, which decide if the extension is unknown or missing. A
    file with the extension of an image is one whatever it holds: it may be damaged.
    """
    if has_image_extension(name):
        return True
    return not name.lower().endswith(_NOT_IMAGES) and image_suffix(read_start()) is not None


def has_image_extension(name: bytes) -> bool:
    """Return whether a file has the extension of an image."""
    return name.lower().endswith(_EXTENSIONS)


def kind_of_file(name: bytes) -> str:
    """Return the kind of a file that is not read: its extension, for counts."""
    stem, dot, extension = name.rpartition(b"/")[2].rpartition(b".")
    return f".{extension.decode('utf-8', 'replace').lower()}" if stem and dot else "without extension"
