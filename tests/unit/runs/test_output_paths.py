"""Names of results: different for all inputs, whatever these are called, and possible on any file system."""

import os
from pathlib import PurePosixPath

import pytest

from paragan.core.errors import DataError
from paragan.runs.output_folder import output_paths


def paths(*names, ending=".png"):
    return [str(path) for path in output_paths(names, ending)]


def test_output_paths_of_usual_names_have_another_ending_alone():
    assert paths("a.jpg", "sub/a.jpeg", "b.c.png", "plain") == ["a.png", "sub/a.png", "b.c.png", "plain.png"]
    assert paths("same.jpg", "same.png") == ["same.jpg.png", "same.png.png"]


@pytest.mark.parametrize(
    "names",
    [
        ["a.png", "a.jpg", "a.png.png"],  # with both endings, one has the name of the third
        ["a.png", "a.jpg", "a.png.png", "a.jpg.png", "a.png-2.png", "a.png-2.jpg"],
        ["b.jpg", "b.png/x.png"],  # a folder has the name of a result
        ["b.jpg", "b.gif", "b.jpg.png/x/y.png", "b.jpg.png/x.png"],
        ["A.png", "a.png"],  # one file where capitals do not count
        ["Straße.png", "STRASSE.jpg", "x/y.png", "X/y.png"],
        ["n" * 251 + ".jpg", "n" * 251 + ".png", "n" * 251 + ".gif"],
        ["画" * 83 + ".jpg", "画" * 83 + ".gif", "画" * 100 + "/a.png"],  # three bytes each
        ["x." + "e" * 250, "x." + "e" * 249 + "f"],
        ["new\nline.png", b"\xff\xfe.png".decode("utf-8", "surrogateescape"), " .png"],
    ],
)
@pytest.mark.parametrize("ending", [".png", ".safetensors"])
def test_output_paths_differ_and_can_be_files(names, ending, tmp_path):
    results = output_paths(names, ending)
    assert len({str(path).casefold() for path in results}) == len(names)
    folders = {str(folder).casefold() for path in results for folder in path.parents}
    assert not folders & {str(path).casefold() for path in results}
    for path in results:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).touch(exist_ok=False)
        assert path.suffix == ending


def test_output_paths_do_not_depend_on_which_inputs_are_left():
    names = ["c.jpg", "a.png", "a.jpg", "a.png.png"]
    assert output_paths(names, ".png") == output_paths(names, ".png")
    assert set(output_paths(sorted(names), ".png")) == set(output_paths(names, ".png"))


@pytest.mark.parametrize("name", ["../a.png", "/etc/a.png", "a/../../b.png"])
def test_output_path_that_leads_out_of_its_folder_is_refused(name):
    with pytest.raises(DataError, match="leads out"):
        output_paths([name], ".png")


def test_long_names_are_cut_and_differ_by_their_hash():
    first, second = paths("n" * 251 + "a.png", "n" * 251 + "b.png", ending=".safetensors")
    assert first != second
    assert max(len(os.fsencode(PurePosixPath(path).name)) for path in (first, second)) <= 255
