"""The commands that the last lines of a run name."""

from types import SimpleNamespace

import pytest

from paragan.runs.run_lines import result_lines


@pytest.mark.parametrize(
    ("advised", "is_scored", "expected"),
    [
        ("", True, ["resume"]),
        ("", False, ["resume", "score"]),
        ("advised", True, ["advised", "resume"]),
        ("advised", False, ["advised", "resume", "score"]),
    ],
)
def test_a_stopped_run_names_the_advised_command_first(tmp_path, advised, is_scored, expected):
    if is_scored:
        (tmp_path / "score.json").touch()
    trainer = SimpleNamespace(is_complete=False, score=len)
    commands = {"resume": "resume", "score": "score"}
    session = SimpleNamespace(
        run_info={"commands": commands}, folder=tmp_path, trainer=trainer, advised_command=advised
    )
    lines = result_lines(session).splitlines()
    assert lines[1].startswith("next ")
    assert [line[10:].split()[0] for line in lines[1:]] == expected
