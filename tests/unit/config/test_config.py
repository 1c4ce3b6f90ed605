"""The config of a run: read, checked, written. Every complaint has its line, its key, and what would be right."""

import json
import sys

import pytest

from paragan import config
from paragan.config import compare, config_tree, dump, read_recipe, to_tree
from paragan.core import registry
from paragan.core.errors import ConfigError
from paragan.core.option_types import TORCH_OPTIMISERS

LEAST = "data: digits\nmodel: {name: mlp}\nloss: hinge\n"


@pytest.fixture
def recipe(tmp_path, monkeypatch):
    """Writes run.yaml into the current folder; its short name is what messages start with."""
    monkeypatch.chdir(tmp_path)

    def write(text: str) -> str:
        (tmp_path / "run.yaml").write_text(text, encoding="utf-8")
        return "run.yaml"

    return write


def problems(*arguments) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        read_recipe(*arguments)
    return str(caught.value).splitlines()


def test_what_is_not_written_stays_at_its_default(recipe):
    found = read_recipe(recipe(LEAST))
    assert found.data.name == "digits"
    assert (found.model.options, found.seed, found.penalties) == (registry.options("models", "mlp")(), 0, ())
    assert found.scheme.name == "synchronous"


def test_written_values_arrive_with_the_type_of_their_field(recipe):
    text = "g: {optimizer: {lr: 1, arguments: {betas: [0, 0.9]}}, ema: {half_life_kimg: 2}}\ntrain: {kimg: 3}\n"
    words = ["model.g_widths=[8, 16]", "seed=0x1f", "penalties=[r1, {name: r1, weight: 3}]"]
    found = read_recipe(recipe(LEAST + text), words)
    assert found.g.optimizer.lr == 1.0
    assert isinstance(found.g.optimizer.lr, float)
    assert isinstance(found.train.kimg, float)
    assert found.g.optimizer.arguments == {"betas": [0, 0.9]}
    assert found.model.options.g_widths == (8, 16)
    assert found.seed == 31
    default = registry.options("penalties", "r1")().weight
    assert [penalty.options.weight for penalty in found.penalties] == [default, 3.0]


def test_an_override_wins_over_the_file_and_a_later_one_over_an_earlier(recipe):
    found = read_recipe(recipe(LEAST + "train: {batch: 8, kimg: 2}\n"), ["train.batch=16", "train.batch=32"])
    assert (found.train.batch, found.train.kimg) == (32, 2.0)


@pytest.mark.parametrize("word", ["model=dcgan", "model.name=dcgan", "model={name: dcgan}"])
def test_another_model_drops_what_the_recipe_said_of_the_first(recipe, word):
    found = read_recipe(recipe("data: digits\nmodel: {name: mlp, latent: 7, g_widths: [3]}\nloss: hinge\n"), [word])
    assert found.model == config.choose("models", "dcgan")


def test_another_penalty_drops_what_the_recipe_said_of_the_first(recipe):
    path = recipe(LEAST + "penalties: [{name: r1, weight: 7}, orthogonal]\n")
    first, second = read_recipe(path, ["penalties.0.name=gradient_penalty", "penalties.1.weight=3"]).penalties
    assert first == config.choose("penalties", "gradient_penalty")
    assert (second.name, second.options.weight) == ("orthogonal", 3.0)


def test_another_model_keeps_what_the_command_line_says(recipe):
    found = read_recipe(recipe(LEAST), ["model.latent=7", "model.name=dcgan", "model.width=8"])
    assert (found.model.name, found.model.options.latent, found.model.options.width) == ("dcgan", 7, 8)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("train:\n  batchsize: 3\n", "run.yaml:5: train.batchsize: unknown key; choose one of batch, kimg, "
                                     "threads, deterministic, timeout_s, watchdog_s, "
                                     "executor, layout, change_rates; did you mean 'train.batch'?"),
        ("train: {batch: true}\n", "run.yaml:4: train.batch: must be an integer >= 1…, not true"),
        ("train: {batch: 1.0}\n", "run.yaml:4: train.batch: must be an integer >= 1…, not 1.0"),
        ("train: {batch: 010}\n", "run.yaml:4: train.batch: must be an integer >= 1…, not '010'"),
        ("train: {batch: '3'}\n", "run.yaml:4: train.batch: must be an integer >= 1…, not '3'"),
        ("train: {batch: }\n", "run.yaml:4: train.batch: must be an integer >= 1…, not null"),
        ("train: {kimg: 0}\n", "run.yaml:4: train.kimg: must be a number > 0…, not 0"),
        ("train: {kimg: .nan}\n", "run.yaml:4: train.kimg: must be a number > 0…, not '.nan'"),
        ("train: 3\n", "run.yaml:4: train: must be a map of batch, kimg…, not 3"),
        ("seed: 0.5\n", "run.yaml:4: seed: must be an integer…, not 0.5"),
        ("g: {max_norm: -1}\n", "run.yaml:4: g.max_norm: must be a number > 0 or null…, not -1"),
        ("g: {channels_last: 1}\n", "run.yaml:4: g.channels_last: must be true or false or null…, not 1"),
        ("g: {precision: bf32}\n", "run.yaml:4: g.precision: must be one of auto, fp32, bf16, fp16, "
                                   "pure, not 'bf32'; did you mean 'fp32'?"),
        ("g: {schedule: {final: 1.5}}\n", "run.yaml:4: g.schedule.final: must be a number >= 0 and <= 1…, not 1.5"),
        ("g: {ema: 3}\n", "run.yaml:4: g.ema: must be a map of half_life_kimg, start_kimg…, not 3"),
        ("g: {strategy: nono}\n", "run.yaml:4: g.strategy.name: unknown strategy 'nono'; choose one of ddp, "),
        ("g: {strategy: {name: local_sgd, every: 0}}\n",
         "run.yaml:4: g.strategy.every: must be an integer >= 1…, not 0"),
        ("d: {optimizer: {arguments: [1]}}\n", "run.yaml:4: d.optimizer.arguments: must be a map…, not [1]"),
        ("d: {optimizer: {name: LBFGS}}\n", "run.yaml:4: d.optimizer.name: unknown optimizer 'LBFGS'; choose one "),
        ("penalties: 1\n", "run.yaml:4: penalties: must be a list…, not 1"),
        ("penalties:\n- r1\n- {weight: 3}\n", "run.yaml:6: penalties.1.name is required; choose one of "),
        ("penalties:\n- {name: r1, wieght: 3}\n", "run.yaml:5: penalties.0.wieght: unknown key; choose one "
                                                  "of name, weight, "),
        ("scheme: {name: 3}\n", "run.yaml:4: scheme.name: must be one of …, not 3"),
        ("scheme: [a]\n", "run.yaml:4: scheme: must be one of …, not ['a']"),
        ("format: 2\n", "run.yaml:4: format: must be 1, not 2; a file of a later format needs a newer paragan"),
        ("format: true\n", "run.yaml:4: format: must be 1, not true"),
    ],
)  # fmt: skip
def test_a_wrong_value_is_one_line_that_says_what_is_right(recipe, text, problem):
    found = problems(recipe(LEAST + text))
    assert len(found) == 1
    start, _, end = problem.partition("…")  # between them: the rest of what is valid
    assert found[0].startswith(start)
    assert end in found[0]


def test_all_problems_of_file_and_command_line_come_at_once(recipe):
    path = recipe("data: digits\nmodel: {name: mlpp}\nseed: no\nseed: 3\ntrain:\n  batch: -1\n  kimgs: 3\n")
    found = problems(path, ["every.keep=0", "penalties.3.x=1", "g.micro_batches"])
    starts = [
        "command line: penalties.3.x: invalid index",
        "command line: 'g.micro_batches' is not an override",
        "command line: every.keep: must be",
        "run.yaml:1: loss is required",
        "run.yaml:2: model.name: unknown model",
        "run.yaml:3: seed: must be",
        "run.yaml:4: seed: duplicate key",
        "run.yaml:6: train.batch: must be",
        "run.yaml:7: train.kimgs: unknown key",
    ]
    assert [line[: len(start)] for line, start in zip(found, starts, strict=True)] == starts


def test_a_file_full_of_nonsense_gets_a_short_answer(recipe):
    found = problems(recipe(LEAST + "".join(f"key{i}: 1\n" for i in range(500)) + f"{'x' * 1000}: 1\n"))
    assert len(found) == 51
    assert found[-1] == "and 451 more"
    assert max(map(len, found)) <= 1000


def test_a_dumped_config_loads_back_equal(recipe):
    words = ["penalties=[{name: r1, weight: 2e-4}]", "g.ema={}", "model.g_widths=[3]", "d.optimizer.arguments.x='no'"]
    first = read_recipe(recipe(LEAST), words)
    assert read_recipe(recipe(dump(first))) == first
    assert read_recipe(recipe(json.dumps(to_tree(first)))) == first
    assert to_tree(first)["format"] == config_tree.FORMAT


def test_differences_are_dotted_keys(recipe):
    path = recipe(LEAST + "penalties: [r1]\n")
    first = read_recipe(path)
    assert compare(first, read_recipe(path)) == {}
    words = ["train.batch=3", "penalties.0.weight=7", "g.ema={}", "d.optimizer.arguments.betas=[0, 1]"]
    assert list(compare(first, read_recipe(path, words))) == [
        *("penalties.0.weight", "d.optimizer.arguments", "train.batch"),
        *("g.ema.half_life_kimg", "g.ema.start_kimg", "d.optimizer.arguments.betas"),
    ]
    assert set(compare(first, read_recipe(path, ["model=dcgan"]))) >= {"model.name", "model.width"}


def test_the_optimisers_known_without_torch_are_those_of_torch():
    torch = pytest.importorskip("torch")
    kinds = {name for name, kind in vars(torch.optim).items() if isinstance(kind, type)}
    assert set(TORCH_OPTIMISERS) == kinds - {"Optimizer", "LBFGS", "SparseAdam", "Muon"}


OUTSIDE = """
import torch_is_not_imported_here
from dataclasses import dataclass
from paragan.core.option_types import Count

@dataclass(frozen=True)
class Options:
    depth: Count = 3

    def __post_init__(self):
        if self.depth == 13:
            raise ValueError("depth 13 is unlucky; use another")
"""


def test_outside_code_is_a_dotted_path_and_is_not_run(recipe, tmp_path, monkeypatch):
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "nets.py").write_text(OUTSIDE)
    monkeypatch.syspath_prepend(tmp_path)
    found = read_recipe(recipe(LEAST), ["model.name=outside.nets", "model.depth=5"])
    assert (found.model.name, found.model.options.depth) == ("outside.nets", 5)
    assert "outside.nets" not in sys.modules
    path = recipe(LEAST)
    assert problems(path, ["model=outside.net"])[0].startswith(
        "command line: model.name: cannot import 'outside.net': no module named 'outside.net' on PYTHONPATH; "
    )
    assert problems(path, ["model={name: outside.nets, depth: 13}"]) == [
        "command line: model: depth 13 is unlucky; use another"
    ]


@pytest.mark.parametrize(
    ("package", "source", "problem"),
    [
        ("torn1", "class Options(Base): pass", "name 'Base' is not defined; `Options` is read"),
        ("torn2", "def", "is not valid Python"),
    ],
)
def test_outside_options_that_cannot_be_read_are_one_line(recipe, tmp_path, monkeypatch, package, source, problem):
    (tmp_path / package).mkdir()
    (tmp_path / package / "nets.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    (found,) = problems(recipe(LEAST), [f"model={package}.nets"])
    assert problem in found


def test_changes_are_listed_against_the_recipe():
    changed = config.changes("digits", config.read_recipe("digits", ["train.kimg=2", "augment=diffaugment"]))
    assert changed["train.kimg"] == [96.0, 2.0]
    assert changed["augment.name"] == [None, "diffaugment"]
    assert config.changes("digits", config.read_recipe("digits")) == {}


@pytest.mark.parametrize(
    ("address", "expected"),
    [("[::1]:0", ("::1", 0)), ("[fe80::1]:9000", ("fe80::1", 9000)), ("host.local:80", ("host.local", 80))],
)
def test_coordinator_address_is_a_host_that_sockets_take_and_a_port(address, expected):
    words = ["grid.shape=2x2", f"coordinator={json.dumps(address)}"]
    assert read_recipe("digits", words).coordinator_address == expected
