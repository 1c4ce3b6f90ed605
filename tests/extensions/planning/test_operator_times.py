"""`plan --profile`: times of torch's operators in both turns."""

from paragan.cli.plan import format_operators, format_plan
from paragan.config import read_recipe
from paragan.core.dist import World
from paragan.extensions.planning.plan import OperatorTime
from paragan.extensions.planning.plan_run import PlanRequest, plan_run
from paragan.runs import layout
from tests.unit.hardware.test_memory_layout import CONVOLUTIONS, WORDS


def test_plan_profiles_the_operators_of_both_turns():
    config = read_recipe("digits", WORDS)
    plan = plan_run(PlanRequest(config=config, recipe="digits", is_measured=True, is_profiled=True))
    nets = layout.TrialRun(config, World(), None).networks()
    convs = {side.value: sum(isinstance(m, CONVOLUTIONS) for m in net.modules()) for side, net in nets.items()}
    assert list(plan.operators) == ["d", "g"]
    # D's turn goes back through D for real and for fake images, G's through both networks
    for side, count in (("d", 2 * convs["d"]), ("g", convs["g"] + convs["d"])):
        seconds = [one.seconds for one in plan.operators[side]]
        assert seconds == sorted(seconds, reverse=True) and seconds[-1] > 0
        backward = next(one for one in plan.operators[side] if one.name == "aten::convolution_backward")
        assert backward.calls == count > 0
    text = format_plan(plan)
    for words in ("D turn  ", "G turn  ", "aten::convolution_backward", f"{len(plan.operators['g']) - 12} more"):
        assert words in text


def test_shares_of_an_operator_table_are_of_all_operators():
    text = format_operators("g", [OperatorTime(f"aten::{number}", 2.0, 0.05) for number in range(20)])
    lines = text.splitlines()
    assert lines[0].split() == ["G", "turn", "calls", "time"] and len(lines) == 14
    assert lines[1].split() == ["aten::0", "2", "50", "ms", "5.0%"]
    assert lines[-1].split() == ["8", "more", "400", "ms", "40.0%"]
