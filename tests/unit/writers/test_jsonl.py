"""The record of a run, metrics.jsonl: what another program does to it is noticed."""

import json
import os
import warnings

import pytest

from paragan.core.event import Event
from paragan.writers.jsonl import Writer


def test_a_record_that_another_program_shortens_is_noticed_once(tmp_path):
    writer = Writer(None, tmp_path)
    kinds = ["step", "checkpoint"] * 2
    events = [Event(kind=kind, step=step, images=step, values={}) for step, kind in enumerate(kinds)]
    writer.write(events[0])
    os.truncate(tmp_path / "metrics.jsonl", 0)
    with pytest.warns(UserWarning, match=r"metrics.jsonl: [\d,]+ bytes of the record are gone"):
        writer.write(events[1])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        writer.write(events[2])
        writer.write(events[3])
    writer.close()
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [1, 2, 3]
