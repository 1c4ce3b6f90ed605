"""`paragan verify`: all laws hold for good networks; each fault fails the row it should, for the reason it has."""

import json
import subprocess
from dataclasses import replace

import pytest
import torch

from paragan.cli.main import main
from paragan.core.balancer import Balancer
from paragan.extensions.verify import laws
from paragan.extensions.verify.explanations import unsupported_penalty
from paragan.extensions.verify.reference_run import TraceDifference, compare_traces, exact_arithmetic
from paragan.extensions.verify.verify_networks import VerifyRequest, verified_networks
from tests.extensions.verify.unlawful import DETACHED, FAULTS, SEVERAL, SHARED_WEIGHTS, STRAIGHT, TORCH_SPECTRAL, faulty


def name_of(text: str) -> str:
    return f"nets_{abs(hash(text)):x}"


@pytest.fixture
def verified(tmp_path, monkeypatch, capfd):
    """The rows of a module as the command tells them, and its exit code; a package of another name each time."""

    def verify(text: str, *words: str) -> tuple[list[dict], int]:
        name = name_of(text)
        (tmp_path / name).mkdir(exist_ok=True)
        (tmp_path / name / "__init__.py").write_text("")
        (tmp_path / name / "nets.py").write_text(text)
        monkeypatch.chdir(tmp_path)
        monkeypatch.syspath_prepend(tmp_path)
        words = words if "--ranks" in words else (*words, "--ranks", "1")
        code = main(["verify", f"{name}.nets", "--shape", "1x8x8", "--json", *words])
        return json.loads(capfd.readouterr().out), code

    return verify


def failures(rows: list[dict]) -> dict[str, str]:
    """`law, strategy` to reason."""
    return {f"{row['law']}, {row['strategy']}": row["reason"] for row in rows if row["result"] == "FAILED"}


def test_verify_good_networks_pass_in_one_process(verified):
    rows, code = verified(faulty())
    assert (failures(rows), code) == ({}, 0)
    results = {(row["law"], row["strategy"]): row["result"] for row in rows}
    assert results["parts are the whole", "G"] == "exempt"  # its batch norm
    assert [result for (law, _), result in results.items() if law == "one is none"] == ["held"] * 7
    assert [r for (law, name), r in results.items() if law == "ranks are the batch"] == ["not run"] * 13 + ["exempt"]
    assert "--ranks 1" in next(row["reason"] for row in rows if row["result"] == "not run")


def test_verify_without_batch_norm_nothing_is_exempt(verified):
    rows, code = verified(faulty(STRAIGHT))
    assert code == 0
    assert {row["strategy"] for row in rows if row["result"] == "exempt"} == {"local_sgd"}


IN_D = (
    "self.last = nn.Linear(options.width, 1)",
    "self.last = nn.Sequential(nn.BatchNorm1d(options.width), nn.Linear(options.width, 1))",
)
PLAIN_NORMS = {
    "G": ([("NORM(", "nn.BatchNorm2d(")], {"G"}),
    "D": ([IN_D], {"D"}),
    "both": ([("NORM(", "nn.BatchNorm2d("), IN_D], {"G", "D"}),
    "without running average": ([("NORM(options.width)", "nn.BatchNorm2d(options.width, momentum=None)")], {"G"}),
    "no statistics": ([("NORM(options.width)", "nn.BatchNorm2d(options.width, track_running_stats=False)")], set()),
}


@pytest.mark.parametrize("place", PLAIN_NORMS)
def test_verify_batch_norm_of_torch_is_exempt_from_frozen_means_frozen_and_fails_nothing(place, verified):
    changes, sides = PLAIN_NORMS[place]
    rows, code = verified(faulty(*changes))
    assert (failures(rows), code) == ({}, 0)
    frozen = {row["strategy"]: row for row in rows if row["law"] == "frozen means frozen"}
    assert {side for side, row in frozen.items() if row["result"] == "exempt"} == sides
    for side in sides:
        assert "training is the same" in frozen[side]["reason"] and "SyncBatchNorm" in frozen[side]["reason"]


OLD_STYLE = "import spectral_norm\n", "import SpectralNorm\nfrom torch.nn.utils import spectral_norm\n"


@pytest.mark.parametrize("style", [OLD_STYLE, TORCH_SPECTRAL], ids=["hook", "parametrization"])
@pytest.mark.parametrize("activation", ["silu", "leaky_relu", "relu"])
def test_verify_spectral_norm_of_torch_is_twice_differentiable_and_exempt_from_frozen(style, activation, verified):
    rows, _ = verified(faulty(style, ("F.silu(self.conv", f"F.{activation}(self.conv")))
    (twice,) = [row for row in rows if row["law"] == "twice differentiable"]
    assert twice["result"] == "held"
    frozen = {row["strategy"]: row for row in rows if row["law"] == "frozen means frozen"}
    assert (frozen["G"]["result"], frozen["D"]["result"]) == ("held", "exempt")
    assert "is a vector of torch's spectral norm" in frozen["D"]["reason"]


def test_verify_other_state_beside_the_spectral_norm_of_torch_still_fails(verified):
    """A buffer that counts, with the ending of a vector but not of the norm; and one in the layer of the norm."""
    for layer, name in (("self", "count_u"), ("self.conv", "count")):
        counting = (
            "        return F.silu(self.conv(x))",
            f"        {layer}.{name} += 1\n        return F.silu(self.conv(x))",
        )
        made = (
            "spectral_norm(nn.Conv2d(a, b, 3, padding=1))\n",
            "spectral_norm(nn.Conv2d(a, b, 3, padding=1))\n"
            f"        {layer}.register_buffer('{name}', torch.zeros(()))\n",
        )
        rows, code = verified(faulty(made, counting, TORCH_SPECTRAL))
        assert code == 2 and f"{name} changed in the other player's turn" in failures(rows)["frozen means frozen, D"]


@pytest.mark.slow
def test_verify_batch_norm_of_torch_trains_on_two_ranks_as_on_one(verified):
    rows, code = verified(faulty(*PLAIN_NORMS["both"][0]), "--ranks", "2")
    assert (failures(rows), code) == ({}, 0)
    held = [row for row in rows if row["law"] == "ranks are the batch" and row["result"] == "held"]
    assert len(held) == 8 and all(row["difference"] < 1e-12 for row in held)


@pytest.mark.filterwarnings("ignore:model. Generator.forward.* reads a generator of its own:UserWarning")
@pytest.mark.filterwarnings("ignore:model. Generator.forward.* changes calls, which no checkpoint has:UserWarning")
@pytest.mark.filterwarnings("ignore:model. Discriminator.forward.* does not use the weights:UserWarning")
@pytest.mark.parametrize("fault", FAULTS)
def test_verify_fault_fails_its_law_with_reason(fault, verified):
    changes, expected = FAULTS[fault]
    rows, code = verified(faulty(*changes))
    found = failures(rows)
    assert code == 2
    assert found.keys() >= expected.keys(), found
    assert not [(row, found[row]) for row, said in expected.items() if said not in found[row]]
    assert found.keys() == expected.keys()  # one fault is told once


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (DETACHED, "returned logits that do not depend on 'image'"),
        (SHARED_WEIGHTS, "share weights; give each separate"),
    ],
    ids=["detached", "shared weights"],
)
def test_verify_refuses_networks_that_no_game_can_train(tmp_path, monkeypatch, capfd, changes, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(faulty(*changes))
    assert main(["verify", "mine.py", "--shape", "1x8x8", "--json", "--ranks", "1"]) == 2
    assert message in capfd.readouterr().err


DROPOUT = [("self.conv = ", "self.drop = nn.Dropout(0.5)\n        self.conv = "), ("F.silu(self.c", "self.drop(self.c")]


@pytest.mark.slow
def test_verify_dropout_exempts_nothing_of_a_network_but_its_masks(verified):
    rows, code = verified(faulty(STRAIGHT, *DROPOUT), "--ranks", "2")
    assert (failures(rows), code) == ({}, 0)
    assert {row["strategy"] for row in rows if row["result"] == "exempt"} == {"local_sgd"}
    split = [row for row in rows if row["law"] in ("parts are the whole", "ranks are the batch")]
    held = [row for row in split if row["result"] == "held"]
    assert len(held) == 2 + 8 and all(row["difference"] < 1e-12 for row in held)
    masks = "without dropout, which draws for each call and rank (Discriminator: blocks.0.drop (Dropout) and 1 more)"
    assert {row["reason"] for row in held} == {masks}


@pytest.mark.parametrize("drop", ["nn.Dropout(0.5)", "nn.AlphaDropout(0.3)"])
def test_verify_dropout_hides_no_mean_over_the_batch(drop, verified):
    changes = [(before, after.replace("nn.Dropout(0.5)", drop)) for before, after in DROPOUT]
    rows, code = verified(faulty(*FAULTS["mean-over-the-batch"][0], *changes))
    assert code == 2
    assert "Generator: a row changes" in failures(rows)["parts are the whole, G"]


IN_FORWARD = {
    "torch": "torch.randn_like(x)",
    "numpy": "__import__('numpy').random.normal()",
    "functional dropout": "F.dropout(torch.ones_like(x), 0.5, True)",
    "with dropout": "F.dropout(self.drop(torch.rand_like(x)), 0.1, True)",
}


@pytest.mark.parametrize("draw", IN_FORWARD)
def test_verify_noise_in_forward_is_as_exact_as_in_the_trainer(draw, verified):
    """Seeded by turn and update: repeats and resumes bit for bit, under all strategies; only splits draw otherwise."""
    noise = ("return F.silu(self.conv(x))", f"return F.silu(self.conv(x + 0.1 * {IN_FORWARD[draw]}))")
    rows, code = verified(faulty(STRAIGHT, noise, DROPOUT[0]))
    assert (failures(rows), code) == ({}, 0)
    results = {row["law"]: row["result"] for row in rows}
    assert results["deterministic"] == results["stopping is invisible"] == results["one is none"] == "held"
    exempt = [row for row in rows if row["result"] == "exempt" and row["strategy"] != "local_sgd"]
    assert {row["law"] for row in exempt} == {"parts are the whole"}
    assert all("Discriminator: its forward draws for each call and rank" in row["reason"] for row in exempt)


@pytest.mark.slow
def test_verify_dropout_drawn_by_row_is_held_to_every_law(verified):
    text = faulty(
        ("self.conv = ", "self.drop = Dropout(0.5)\n        self.conv = "),
        ("F.silu(self.c", "self.drop(self.c"),
        ("from torch import", "from paragan.layers.random import Dropout\nfrom torch import"),
    )
    rows, code = verified(text, "--ranks", "2")
    assert (failures(rows), code) == ({}, 0)
    assert not [row for row in rows if row["result"] == "exempt" and "Dropout" in row["reason"]]


@pytest.mark.slow
@pytest.mark.distributed
def test_verify_good_networks_pass_on_two_ranks(verified):
    rows, code = verified(faulty(), "--ranks", "2")
    assert (failures(rows), code) == ({}, 0)
    several = [row for row in rows if row["law"] == "ranks are the batch"]
    held = [row for row in several if row["result"] == "held"]
    assert len(held) == 8 and all(row["difference"] < 1e-12 for row in held)
    left = {row["strategy"]: (row["result"], row["reason"]) for row in several if row not in held}
    assert left.keys() == {"pipeline", "pipeline, uneven", "tensor", "tensor, uneven", "hsdp", "local_sgd"}
    assert left["pipeline"][0] == "not run"
    assert left["pipeline"][1].startswith("strategy pipeline needs the attribute `blocks` of Generator")
    pattern = f"paragan.extensions.verify.verify_networks .*{name_of(faulty())}"
    assert subprocess.run(["pgrep", "-f", pattern], capture_output=True, text=True, timeout=30).stdout == ""


@pytest.mark.slow
def test_verify_four_ranks_run_hsdp(verified):
    rows, code = verified(faulty(), "--ranks", "4")
    assert (failures(rows), code) == ({}, 0)
    hybrid = [row for row in rows if row["strategy"].startswith("hsdp")]
    assert [row["result"] for row in hybrid] == ["held"] * 2
    assert all(row["difference"] < 1e-12 for row in hybrid)


@pytest.mark.slow
@pytest.mark.parametrize("fault", SEVERAL)
def test_verify_fault_on_two_ranks_fails(fault, verified):
    changes, strategies, said = SEVERAL[fault]
    rows, code = verified(faulty(*changes), "--ranks", "2")
    found = failures(rows)
    assert code == 2
    assert not [found for name in strategies if said not in found.get(f"ranks are the batch, {name}", "")]
    if fault == "one-rank-raises":  # the rows beside those are not drawn into it
        assert len([row for row in rows if row["law"] == "ranks are the batch" and row["result"] == "held"]) == 4


def test_verify_recipe_uses_its_game(capsys):
    words = ["digits", "model.width=4", "model.latent=8", "--ranks", "1"]
    assert main(["verify", *words]) == 0
    out, err = capsys.readouterr()
    assert out.splitlines()[0].split() == ["law", "strategy", "result", "difference", "reason"]
    assert out.splitlines()[-1] == "13 held, 2 exempt, 13 not run"
    assert err.splitlines()[0] == "twice differentiable, D: held"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["no.such.nets"], "cannot import 'no.such.nets': no module named 'no'"),
        (["digits", "digits"], "verify needs exactly one module"),
        (["digits", "--shape", "32"], "'32' is not CHANNELSxHEIGHTxWIDTH"),
        (["digits", "--ranks", "0"], "--ranks"),
    ],
)
def test_verify_invalid_subject_is_one_line(words, said, capsys):
    assert main(["verify", *words]) == 2
    told = capsys.readouterr().err.strip().splitlines()
    assert len(told) == 1 and said in told[0]


class Forgetful(Balancer):
    """A balancer whose state is no tensor of its `state`."""

    name = "forgetful"
    calls = 0

    def factors(self, gradients):
        self.calls += 1
        return {name: torch.tensor(1 / self.calls) for name in gradients.at_output}


def test_verify_runs_the_balancer_of_a_recipe():
    words = ("balancer=gradient_normalization", "model.width=4")
    networks = verified_networks(VerifyRequest(target="digits", overrides=words, shape=(1, 8, 8), classes=2))
    forgetful = replace(networks, game=replace(networks.game, balancer=Forgetful()))
    for subject, expected in ((networks, "held"), (forgetful, "FAILED")):
        with exact_arithmetic():
            (*_, stopping) = laws.run_laws(subject, (laws.stopping,))
        assert (stopping.law, stopping.result) == ("stopping is invisible", expected)
        said = unsupported_penalty(subject, "local_sgd")
        assert said.startswith("balancer ") and "strategy local_sgd" in said
    assert isinstance(forgetful.game.balancer, Forgetful) and not forgetful.game.balancer.calls


def test_compare_traces_zero_tolerance_is_bitwise():
    trace = {0: {"w": torch.ones(2)}, 1: {"w": torch.tensor([1.0, float("nan")])}}
    assert compare_traces(trace, trace, 0.0) == TraceDifference()
    difference = compare_traces({0: trace[0], 1: {"w": torch.ones(2)}}, trace)
    assert (difference.name, difference.step) == ("w", 1)
    zeros = [{0: {"w": torch.tensor(zero)}} for zero in (-0.0, 0.0)]
    assert compare_traces(zeros[0], zeros[1], 0.0).largest == 0.0
