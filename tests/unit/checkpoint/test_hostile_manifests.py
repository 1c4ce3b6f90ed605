"""A manifest that someone has edited by hand: refused in one line, whatever it says; nothing else is read."""

import json

import pytest

from paragan.checkpoint.manifest import MANIFEST, read_manifest
from paragan.core.errors import CheckpointError

BOX = {"shape": [4, 2], "offset": [0, 0], "length": [4, 2], "stage": None}
WHOLE = {
    "format": 1,
    "files": {"g.safetensors": "0" * 64, "state.json": "1" * 64},
    "pieces": {"g.safetensors": {"net/w": BOX}},
}


def read(folder, text):
    (folder / MANIFEST).write_text(text)
    return read_manifest(folder)


def with_box(**values):
    return json.dumps({**WHOLE, "pieces": {"g.safetensors": {"net/w": {**BOX, **values}}}})


def with_name(name):
    files = {name: "0" * 64, "state.json": "1" * 64}
    return json.dumps({**WHOLE, "files": files, "pieces": {name: {"net/w": BOX}}})


def repeated(key):
    """The manifest with a key twice, first with another value."""
    return json.dumps(WHOLE).replace(f'"{key}": ', f'"{key}": {{}}, "{key}": ', 1)


NAMES = ["/etc/passwd", "../../config.yaml", "a/../g.safetensors", "g\0.safetensors", "", ".", "g.safetensors/"]
NUMBERS = [-1, None, {}, "x", [-1, 2], [10**30, 2], [True, 2], [4.0, 2], ["4", 2], [4], [4, 2, 1], [[4], 2]]
HOSTILE = {
    **{f"name {name!r}": with_name(name) for name in NAMES},
    **{f"{key} {value!r}": with_box(**{key: value}) for key in ("shape", "offset", "length") for value in NUMBERS},
    **{f"stage {value!r}": with_box(stage=value) for value in ([], {}, "", "x", False, True, 0.0, 1.5)},
    **{f"{key} twice": repeated(key) for key in ("files", "g.safetensors", "net/w", "shape", "format", "pieces")},
    **{f"pieces {value!r}": json.dumps({**WHOLE, "pieces": value}) for value in (None, [], {}, {"g.safetensors": 7})},
    "box without offset": json.dumps({**WHOLE, "pieces": {"g.safetensors": {"net/w": {"shape": [4, 2]}}}}),
    **{f"format {value!r}": json.dumps({**WHOLE, "format": value}) for value in (None, "1", True, 10**400, -1, [])},
    **{
        f"all of it {text[:9]!r}": text for text in ("[]", "null", "", "[" * 100_000, "9" * 5000, "\0", '{"format": 1}')
    },
}


def test_manifest_as_written_is_read(tmp_path):
    found = read(tmp_path, json.dumps(WHOLE))
    assert set(found.sums) == {"g.safetensors", "state.json"} and set(found.groups) == {"g"}


@pytest.mark.parametrize("label", HOSTILE)
def test_edited_manifest_is_refused_in_one_line_and_leaves_the_folder_alone(label, tmp_path):
    with pytest.raises(CheckpointError) as refused:
        read(tmp_path, HOSTILE[label])
    assert "\n" not in str(refused.value) and len(str(refused.value)) < 1000
    assert [path.name for path in tmp_path.iterdir()] == [MANIFEST]
