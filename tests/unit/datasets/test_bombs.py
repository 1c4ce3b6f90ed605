"""Small files that unpack to huge ones: gzip (see test_mnist), xz, tar, zip, npz, pictures. Bounded, and named."""

import gzip
import io
import lzma
import struct
import tarfile
import tracemalloc
import zipfile
import zlib

import numpy as np
import pytest

from paragan.datasets import _tar_files, cifar10, folder, npz
from paragan.datasets.base import file_readers
from paragan.datasets.base.open_images import open_encoded_images
from paragan.storage import npz as _npz
from tests.data_refusals import refusal

MIB = 1 << 20


def refused(work, max_mib=16):
    """The message; the work may not have held more than `max_mib` at a time."""
    tracemalloc.start()
    try:
        message = refusal(work)
        assert tracemalloc.get_traced_memory()[1] < max_mib * MIB
    finally:
        tracemalloc.stop()
    return message


def npy_header(shape, dtype="|u1"):
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"descr": dtype, "fortran_order": False, "shape": shape})
    return stream.getvalue()


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress], ids=["gzip", "xz"])
def test_a_tar_that_unpacks_to_too_much(tmp_path, pack):
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        entry = tarfile.TarInfo("train/0_1.jpg")
        entry.size = 24 * MIB
        archive.addfile(entry, io.BytesIO(bytes(24 * MIB)))
    path = tmp_path / "bomb.tar"
    path.write_bytes(pack(stream.getvalue()))
    del stream
    message = refused(lambda: list(_tar_files.read_members(path, lambda name: False, 8 * MIB, MIB)))
    assert f"{path}: unpacks to more than 8,388,608 bytes" in message


def test_a_tar_member_that_is_too_large(tmp_path):
    path = tmp_path / "cifar10-jpeg.tar.xz"
    with tarfile.open(path, "w:xz") as archive:
        entry = tarfile.TarInfo("train/0_1.jpg")
        entry.size = 4 * MIB
        archive.addfile(entry, io.BytesIO(bytes(4 * MIB)))
    assert "'train/0_1.jpg' has 4,194,304 bytes" in refused(
        lambda: cifar10.source(cifar10.Options(str(tmp_path)), "train")
    )


def test_a_tar_header_that_claims_to_be_long(tmp_path):
    """Extended headers are read in one piece by `tarfile`, whatever they say their length is."""
    entry = tarfile.TarInfo("x")
    entry.type, entry.size = tarfile.XHDTYPE, 1 << 40
    path = tmp_path / "bomb.tar"
    path.write_bytes(gzip.compress(entry.tobuf() + bytes(24 * MIB)))
    message = refused(lambda: list(_tar_files.read_members(path, lambda name: True, 8 * MIB, MIB)), max_mib=32)
    assert str(path) in message


def tar_of(headers):
    """A tar of members of these names, types and contents."""
    stream = io.BytesIO()
    for name, kind, content in headers:
        entry = tarfile.TarInfo(name)
        entry.type, entry.size = kind, len(content)
        stream.write(entry.tobuf(tarfile.USTAR_FORMAT) + content + bytes(-len(content) % 512))
    return stream.getvalue() + bytes(1024)


@pytest.mark.parametrize("pack", [gzip.compress, lambda data, level: data], ids=["gzip", "plain"])
@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK])
def test_a_tar_header_is_read_up_to_its_limit(tmp_path, kind, pack):
    (tmp_path / "bomb.tar").write_bytes(pack(tar_of([("x", kind, bytes(24 * MIB)), ("a.png", b"0", b"")]), 1))
    assert "25,165,824 bytes" in refused(lambda: open_encoded_images(str(tmp_path / "bomb.tar")), max_mib=4)


@pytest.mark.parametrize("pack", [gzip.compress, lambda data, level: data], ids=["gzip", "plain"])
def test_a_map_of_a_sparse_file_is_not_read(tmp_path, pack):
    block = b"00000000001\0" * 42 + b"1" + bytes(7)  # another block follows
    header = bytearray(tar_of([("x", tarfile.GNUTYPE_SPARSE, block * 20_000)]))
    header[482:483] = b"1"
    header[148:156] = b"%06o\0 " % (sum(header[:148]) + 8 * 32 + sum(header[156:512]))
    (tmp_path / "bomb.tar").write_bytes(pack(bytes(header), 1))
    assert "is a sparse file" in refused(lambda: open_encoded_images(str(tmp_path / "bomb.tar")), max_mib=4)


def test_headers_of_a_tar_do_not_add_up(tmp_path):
    record = b"200000 %s" % (b"k" * 199_992 + b"\n")
    headers = [
        header
        for number in range(40)
        for header in (
            ("g", tarfile.XGLTYPE, record.replace(b"kkkk", b"%04d=" % number, 1)[:-2] + b"\n"),
            (f"{number}.txt", b"0", b""),
        )
    ]
    files = [(f"{number}.txt", b"0", b"") for number in range(3000)]
    path = tmp_path / "bomb.tar"
    path.write_bytes(gzip.compress(tar_of([*headers, *files]), 1))
    del headers, files, record
    tracemalloc.start()
    assert not list(_tar_files.read_members(path, lambda name: False, 64 * MIB, MIB))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2.5 * MIB


def test_xz_file_that_requires_much_memory_raises(tmp_path):
    path = tmp_path / "bomb.tar.xz"
    packer = lzma.LZMACompressor(lzma.FORMAT_XZ, filters=[{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 1 << 16}])
    path.write_bytes(with_large_dictionary(packer.compress(bytes(10_240)) + packer.flush()))
    message = refused(lambda: list(_tar_files.read_members(path, lambda name: True, MIB, MIB)))
    assert "emory" in message and str(path) in message


def with_large_dictionary(xz):
    """The same xz stream, declaring a dictionary of 1.5 GiB in its block header (byte 16), with the right checksum."""
    size = (xz[12] + 1) * 4
    header = bytearray(xz[12 : 12 + size - 4])
    place = header.index(bytes((0x21, 0x01))) + 2  # LZMA2, one byte of properties
    header[place] = 37
    return xz[:12] + bytes(header) + struct.pack("<I", zlib.crc32(header)) + xz[12 + size :]


def test_an_npz_that_declares_too_much(tmp_path):
    path = tmp_path / "bomb.npz"
    header = npy_header((64, 1024, 1024))
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("images.npy", "w") as member:
        member.write(header)
        for _ in range(80):
            member.write(bytes(MIB))
    assert "compressed 1,0" in refused(lambda: npz.source(npz.Options(path=str(path)), "train"))
    assert "the limit is 8,388,608" in refused(lambda: _npz.read_array(path, "images", 8 * MIB))


@pytest.mark.parametrize("shape", [(1 << 20, 1 << 20, 64), (2, 8, 8), (2**62, 2**62)])
def test_an_npz_whose_header_says_something_else(tmp_path, shape):
    path = tmp_path / "bomb.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("images.npy", npy_header(shape) + bytes(100))
    assert "100 bytes follow the header" in refused(lambda: npz.source(npz.Options(path=str(path)), "train"))


def test_an_npz_with_a_long_header(tmp_path):
    path = tmp_path / "bomb.npz"
    text = b"{'descr': '|u1', 'fortran_order': False, 'shape': (2, 8, 8), }" + b" " * 50_000 + b"\n"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("images.npy", b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + bytes(128))
    assert "npy header" in refused(lambda: npz.source(npz.Options(path=str(path)), "train"))


DESCRIBED = "{'descr': '%s', 'fortran_order': False, 'shape': %s}"


@pytest.mark.parametrize(
    "text",
    [
        DESCRIBED % ("<U0", "(5,)"),
        DESCRIBED % ("|u1", "(-2, -2)"),
        DESCRIBED % ("|u1", "(0, -2)"),
        DESCRIBED % ("|u1", "(-4,)"),
        DESCRIBED % ("|u1", "(True,)"),
        DESCRIBED % ("|u1", "(" + "9" * 4000 + ",)"),
        "{'descr': (",
        "{[]: 1}",
        "(" * 2000,
        "(" * 1000 + ")" * 1000,
        "-" * 3000 + "1",
        "",
    ],
    ids=["U0", "negative", "zero", "minus", "True", "huge", "open", "unhashable", "deep", "nest", "signs", "empty"],
)
def test_an_npz_header_that_numpy_stumbles_over(tmp_path, text):
    path = tmp_path / "odd.npz"
    header = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text) + 1) + text.encode() + b"\n"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("images.npy", header + bytes(4 if "2, -2" in text else 1 if "True" in text else 0))
    assert str(path) in refused(lambda: npz.source(npz.Options(path=str(path)), "train"))


def test_a_zip_member_whose_name_is_not_the_utf8_it_claims(tmp_path):
    with zipfile.ZipFile(tmp_path / "odd.zip", "w") as archive:
        archive.writestr("éa.png", b"x")
        archive.writestr("b.png", b"y")
    content = (tmp_path / "odd.zip").read_bytes().replace("éa.png".encode(), b"\xff\xfea.png")
    for name in ("odd.zip", "odd.npz"):
        (tmp_path / name).write_bytes(content)
    assert "damaged zip file" in refused(lambda: folder.source(folder.Options(path=str(tmp_path / "odd.zip")), "train"))
    assert "damaged zip file" in refused(lambda: npz.source(npz.Options(path=str(tmp_path / "odd.npz")), "train"))


@pytest.mark.parametrize("size", [10, 2**32 - 2])
def test_a_zip_entry_that_lies_about_its_size(tmp_path, size):
    """What comes is never more than what is declared, and the checksum tells."""
    path = tmp_path / "bomb.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("images.npy", npy_header((32, 1024, 1024)) + bytes(32 * MIB))
    content = bytearray(path.read_bytes())
    place = content.rindex(b"PK\x01\x02") + 24
    content[place : place + 4] = struct.pack("<I", size)
    path.write_bytes(content)
    assert str(path) in refused(lambda: npz.source(npz.Options(path=str(path)), "train"))


def test_zip_member_that_is_too_large_raises(tmp_path, monkeypatch):
    path = tmp_path / "bomb.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for number in range(2):
            with archive.open(f"{number}.png", "w") as member:
                for _ in range(80):
                    member.write(bytes(MIB))
    source = folder.source(folder.Options(path=str(path)), "train")
    assert "compressed 1,0" in refused(lambda: source.fetch([0]))
    monkeypatch.setattr(file_readers, "MAX_FILE_BYTES", 8 * MIB)
    assert "the limit is 8,388,608" in refused(lambda: source.fetch([0]))


def test_image_file_that_is_too_large_raises(tmp_path, monkeypatch):
    monkeypatch.setattr(file_readers, "MAX_FILE_BYTES", MIB)
    for number in range(2):
        with open(tmp_path / f"{number}.png", "wb") as stream:
            stream.truncate(1 << 25)  # takes no room on the disk
    assert "33,554,432 bytes, the limit is 1,048,576" in refused(
        lambda: folder.source(folder.Options(path=str(tmp_path)), "train").fetch([0])
    )


def png(width, height):
    """A PNG of one bit per pixel, black, whole up to 8x8."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = zlib.compress(bytes(min(width, 8) * min(height, 8)))
    header = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


@pytest.mark.parametrize(
    "side", [9_000, 10_000, 20_000, 2**31 - 1], ids=["ours", "Pillow warns", "Pillow stops", "most"]
)
def test_image_with_too_many_pixels_raises(tmp_path, side):
    for number in range(2):
        (tmp_path / f"{number}.png").write_bytes(png(side, side))
    source = folder.source(folder.Options(path=str(tmp_path)), "train")
    assert "the image has too many pixels, the limit is 67,108,864" in refused(lambda: source.fetch([0]))


def test_a_text_chunk_that_unpacks_to_too_much(tmp_path):
    """A PNG may hold packed text; Pillow bounds it."""
    text = b"Comment\x00\x00" + zlib.compress(bytes(64 * MIB))
    chunk = struct.pack(">I", len(text)) + b"zTXt" + text + struct.pack(">I", zlib.crc32(b"zTXt" + text))
    small = png(8, 8)
    for number in range(2):
        (tmp_path / f"{number}.png").write_bytes(small[:33] + chunk + small[33:])
    source = folder.source(folder.Options(path=str(tmp_path), size=8), "train")
    assert "the image is damaged" in refused(lambda: source.fetch([0]))


@pytest.mark.parametrize(("method", "name"), [(zipfile.ZIP_BZIP2, "bzip2"), (zipfile.ZIP_LZMA, "lzma")])
def test_members_that_unpack_in_one_piece_are_refused(tmp_path, method, name):
    """Python unpacks a block of these whole, whatever size their entry declares."""
    for file, member in (("pictures.zip", "a/0.png"), ("arrays.npz", "images.npy")):
        with zipfile.ZipFile(tmp_path / file, "w", method) as archive:
            archive.writestr(member, npy_header((MIB,)) + bytes(MIB))
            archive.writestr(f"b{member}", bytes(MIB))
    source = folder.source(folder.Options(path=str(tmp_path / "pictures.zip"), size=8), "train")
    message = refused(lambda: source.fetch([0]))
    assert message.endswith(
        f"is compressed with {name}; only stored and deflated members are supported: create the file again with "
        "plain `zip`, an npz with numpy.savez"
    )
    assert f"'images.npy' is compressed with {name}" in refused(
        lambda: _npz.read_array(tmp_path / "arrays.npz", "images")
    )
