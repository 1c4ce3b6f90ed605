"""Advice of a session: at the log point that shows a sign, once, with the command."""

from paragan.config import read_recipe, to_tree
from paragan.core.event import Event
from paragan.core.settings_tree import flatten
from tests.unit.engine.test_session import record, session


def advice_after(tmp_path, values, *words):
    """Advice of a session after log points with these values."""
    run = session(tmp_path)
    run.settings = flatten(to_tree(read_recipe("digits", words)))
    run.command = lambda changes: f"train {changes}"
    for step, point in enumerate(values, 1):
        run.write(Event(kind="step", step=step, images=16 * step, values=point))
    run.writer.close()
    return [line for line in record(tmp_path) if line["kind"] == "advice"]


def test_session_advises_at_the_log_point_that_shows_the_sign_once_with_the_command(tmp_path):
    exploded = {"d/gradient_norm": 1e6, "d/loss/adversarial": 1e6, "data_wait": 0.0}
    (advice,) = advice_after(tmp_path, [exploded] * 5, "d.optimizer.lr=0.03")
    assert (advice["step"], advice["name"], advice["changes"]) == (2, "term_explodes", {"d.optimizer.lr": 1e-3})
    assert advice["command"] == "train {'d.optimizer.lr': 0.001}"


def test_session_prints_no_command_twice(tmp_path):
    bad = {"d/gradient_norm": 1e6, "d/loss/adversarial": 1e6, "d/real": 0.0, "d/fake": 0.01, "data_wait": 0.0}
    advice = advice_after(tmp_path, [bad] * 6, "d.optimizer.lr=0.03")
    assert [line["name"] for line in advice] == ["term_explodes"]  # `d_flat` would say the same


def test_session_healthy_log_points_give_no_advice(tmp_path):
    good = {"d/gradient_norm": 3.0, "d/loss/adversarial": 1.1, "d/real": 0.7, "d/fake": -0.5, "data_wait": 0.0}
    assert advice_after(tmp_path, [good] * 9, "d.optimizer.lr=0.03") == []
