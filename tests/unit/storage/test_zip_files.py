"""Members of zip files: as many bytes as were asked for."""

import zipfile

import pytest

from paragan.storage import zip_files


@pytest.mark.parametrize(("limit", "content"), [(None, b"abcdef"), (0, b""), (2, b"ab"), (9, b"abcdef")])
def test_limit_of_a_member_is_the_number_of_bytes_that_are_read(tmp_path, limit, content):
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a", b"abcdef")
    with zip_files.open_zip(path) as archive:
        assert zip_files.read_member(archive, archive.getinfo("a"), "a.zip", 100, limit) == content
