"""Advice: good runs get none, each broken one the right one. The histories are shortened records of real runs."""

import re

import pytest

from paragan.config import read_recipe, to_tree
from paragan.core.settings_tree import flatten
from paragan.engine.advice import RULES, advise, as_flow

MANY = 5000


def looks(**columns):
    """Moments of telemetry from one list per value; `_` in a name is its `/`."""
    names = [re.sub("^([gd])_", r"\1/", name) for name in columns]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def terms(**columns):
    """Log points from one list per term of D's loss."""
    names = [name.replace("d_loss_", "d/loss/") for name in columns]
    rows = zip(*columns.values(), strict=True)
    return [{"d/gradient_norm": 1.0, **dict(zip(names, row, strict=True))} for row in rows]


def scores(*distances, **more):
    return [{"fd[judge]": value} for value in distances] + looks(**more)


def settings(*words, recipe="digits"):
    return flatten(to_tree(read_recipe(recipe, words)))


USUAL = settings()


def names(history, images=MANY, of=USUAL, **more):
    return [advice["name"] for advice in advise(history, images, of, **more)]


def changes(history, *words, images=MANY):
    """What the first advice changes in `digits` with these words."""
    return advise(history, images, settings(*words))[0]["changes"]


GOOD = [
    *looks(
        d_accuracy_train=[0.79, 0.88, 0.87, 0.89, 0.77, 0.71, 0.73, 0.61],
        d_accuracy_held_out=[0.82, 0.90, 0.89, 0.88, 0.75, 0.71, 0.70, 0.57],
        d_accuracy_fake=[0.87, 0.89, 0.90, 0.87, 0.73, 0.78, 0.78, 0.64],
        d_overfitting=[-0.06, -0.04, -0.02, -0.01, 0.04, 0.00, 0.04, 0.16],
        d_saturation=[0.0] * 8,
        gradient_norm_ratio=[0.56, 0.55, 0.46, 0.17, 0.27, 0.86, 0.23, 0.31],
        diversity=[1.36, 1.30, 1.34, 1.36, 1.19, 1.08, 0.99, 1.00],
        g_top_singular_value=[1.75, 1.83, 1.85, 2.00, 2.07, 2.13, 2.19, 2.23],
        d_top_singular_value=[1.12, 1.22, 1.28, 1.29, 1.30, 1.30, 1.29, 1.29],
    ),
    *scores(103.8, 20.7, 31.9, 8.6, 1.7),
    *looks(coverage=[0.01, 0.15, 0.14, 0.43, 0.81]),
]
FEW = looks(  # the same recipe without penalty on 64 images
    d_accuracy_train=[0.91, 0.97, 0.92, 1.00, 0.97, 0.92],
    d_accuracy_held_out=[0.66, 0.70, 0.65, 0.55, 0.39, 0.23],
    d_accuracy_fake=[0.88, 0.91, 0.95, 0.95, 0.92, 0.97],
    d_overfitting=[0.27, 0.28, 0.39, 0.51, 0.71, 1.00],
)
WEAK = looks(d_accuracy_train=[0.5] * 16, d_accuracy_fake=[0.56] * 16, d_saturation=[0.0] * 16)
CHASE = looks(d_accuracy_train=[0.32, 0.23], d_accuracy_fake=[0.38, 0.23], d_saturation=[0.44, 0.22])  # lr x 20
STUCK = scores(105, 52, 52)  # the first is an untrained average's, of statistics that never ran
FELL = scores(100, 20, 5)


def test_advise_good_run_gives_none():
    assert [names(GOOD[:end]) for end in range(len(GOOD) + 1)] == [[]] * (len(GOOD) + 1)


def test_advise_overfitting_d_is_reported_early():
    told = [names(FEW[:end]) for end in range(1, 7)]
    assert told == [[], [], [], [], ["d_overfits"], ["d_overfits"]]
    assert advise(FEW, MANY, USUAL)[0]["value"] == 1.00


SIGNS = [
    # where D hardly separates, r_v is the ratio of two small numbers
    (looks(d_overfitting=[0.9, 1.0], d_accuracy_train=[0.53, 0.54], d_accuracy_held_out=[0.5, 0.49]), []),
    (looks(d_saturation=[0.91, 0.97]), ["d_saturated"]),
    (looks(d_saturation=[0.59, 0.97]), []),
    (CHASE, ["d_certain_and_wrong"]),
    (CHASE[:1], []),
    (looks(d_accuracy_train=[1, 1, 1], d_accuracy_fake=[1, 1, 1]) + STUCK, ["d_too_strong"]),
    (looks(d_accuracy_train=[1, 1, 1], d_accuracy_fake=[1, 1, 1]) + FELL, []),
    (looks(d_accuracy_train=[1, 1, 1], d_accuracy_fake=[1, 1, 1]), []),  # without a score nobody knows
    (WEAK + STUCK, ["d_too_weak"]),
    (WEAK + FELL, []),  # the end of a good game
    (WEAK[:15] + STUCK, []),
    (CHASE * 8 + STUCK, ["d_certain_and_wrong"]),  # its accuracy is low, but D is not weak
    (looks(gradient_norm_ratio=[200, 1000, 150]), ["gradients_out_of_balance"]),
    (looks(gradient_norm_ratio=[1e-3, 1e-4, 2e-3]), ["gradients_out_of_balance"]),
    (looks(gradient_norm_ratio=[200, 1e-3, 150]), []),
    (looks(diversity=[0.9, 0.1, 0.15]), ["mode_collapse"]),
    (looks(diversity=[1.85, 0.4, 0.8, 0.9, 0.3, 0.35]), ["mode_collapse"]),
    (looks(diversity=[1.85, 0.48, 0.27, 0.31, 0.37, 0.34, 0.46, 0.58]), []),  # the first kimg of `own`
    (looks(diversity=[0.9, 0.1, 0.9]), []),
    (looks(diversity=[0.9, 0.8, 0.1]), []),
    (looks(diversity=[0.08, 0.09, 0.07, 0.07]), []),  # a G that starts out grey
    (looks(diversity=[1.92, 1.1, 0.75, 0.75]), []),  # untrained noise is more diverse than images
    (looks(coverage=[0.2, 0.8, 0.3, 0.2]), ["coverage_lost"]),
    (looks(coverage=[0.2, 0.8, 0.3, 0.7]), []),
    (looks(coverage=[0.04, 0.01, 0.01]), []),
    (scores(100, 8, 20, 30), ["score_diverges"]),
    (scores(100, 8, 20, 9), []),
    (scores(8, 20), []),
    (looks(g_top_singular_value=[1.75, 1.81, 1.83, 64.2]), ["weights_explode"]),
    (looks(d_top_singular_value=[1.4, 2.7, 3.4, 3.9, 4.2, 4.6, 4.9]), []),  # an MLP in its first 24 kimg
    (looks(kimg=[0, 60, 120], d_top_singular_value=[1, 2, 7]), []),
    (looks(g_top_singular_value=[2.6, 2.9, 3.2, 3.3, 3.5, 6.8]), ["weights_explode"]),
    (looks(d_top_singular_value=[1.7, 1.8, 1.85, 1.9, 2.6, 3.5]), ["weights_explode"]),
    (looks(g_top_singular_value=[1.6, 2.4, 3.3, 3.6, 4.1, 4.5]), []),
    (terms(d_loss_adversarial=[1.4, 0.7], d_loss_r1=[3.7, 1.2]), []),
    (terms(d_loss_adversarial=[1.4, 0.7], d_loss_r1=[300, 888768]), ["term_explodes"]),
    (terms(d_loss_adversarial=[1.4, 0.7], d_loss_r1=[300, 2]), []),
    (terms(d_loss_adversarial=[-1500, -2000]), ["term_explodes"]),
    (terms(d_loss_adversarial=[-500, -700]), []),  # a Wasserstein D
    (terms(d_loss_adversarial=[float("nan"), float("inf")]), ["term_explodes"]),
    (looks(g_out_of_reach=[0.2, 0.3, 0.4]), ["out_of_reach"]),
    (looks(g_out_of_reach=[0.2, 0.3, 0.0]), []),
]
EARLY = looks(d_accuracy_train=[0.99, 0.99], d_accuracy_fake=[0.9, 0.9])
# signs that good runs have, too
SUSPICIOUS = [
    (EARLY, ["d_ahead"]),
    (WEAK[:2], ["d_behind"]),
    (looks(d_real=[0.01] * 4, d_fake=[-0.02] * 4), ["d_flat"]),
    (looks(kimg=[0, 1], d_top_singular_value=[1, 2]), ["weights_grow"]),
]


@pytest.mark.parametrize(("history", "expected"), SUSPICIOUS)
def test_advise_common_sign_is_a_cause_only_with_an_unusual_setting(history, expected):
    assert names(history) == []
    assert names(history, of=settings("d.optimizer.lr=0.03")) == expected


def grown(*values):
    return [{"kimg": kimg, "d/top_singular_value": value} for kimg, value in enumerate(values)]


@pytest.mark.parametrize(
    "history",
    [
        [grown(1)[0], *scores(100), *grown(1, 1, 1, 1, 2)[1:]],  # a score before the first step
        [moment for measured in grown(1, 1, 2) for moment in (measured, *scores(100))],  # as many scores as telemetry
        [*scores(100, 90, 80, 70, 60), *grown(1, 2)],
    ],
)
def test_advise_scores_do_not_end_the_first_measurements_of_weights(history):
    unusual = settings("d.optimizer.lr=0.03")
    assert "weights_grow" in names(history, of=unusual)
    assert "weights_grow" not in names(
        [*history, *grown(1, 1, 1, 1, 1, 2)], of=unusual
    )  # these are no longer the first


@pytest.mark.parametrize(("history", "expected"), SIGNS)
def test_advise_rule_needs_a_lasting_sign(history, expected):
    assert names(history) == expected


def test_advise_few_images_without_augmentation_is_reported():
    assert names([], 999) == ["few_images"]
    assert names([], 1000) == names([], 999, settings("augment=diffaugment")) == []
    assert advise([], 12, USUAL)[0]["value"] == 12
    assert changes([], images=12) == {"augment.name": "diffaugment"}


def test_advise_pairs_never_suggests_augmentation():
    (few,) = advise([], 400, USUAL, can_augment=False)
    assert few["name"] == "few_images" and "diffaugment" not in few["try"]
    history = [{"d/overfitting": 0.9, "d/accuracy_train": 0.95, "d/accuracy_held_out": 0.2} for _ in range(2)]
    (overfits,) = advise(history, 5000, USUAL, can_augment=False)
    assert overfits["name"] == "d_overfits" and "diffaugment" not in overfits["try"]


@pytest.mark.parametrize(
    ("recipe", "words", "names_flip"),
    [
        ("colourise", ("data.path=x",), False),
        ("colourise", ("data.path=x", "data.flip=false"), True),
        ("pix2pix-facades", ("data.path=x", "data.flip=true"), False),
        ("digits", (), False),  # its data have no such setting
    ],
)
def test_advise_few_pairs_names_no_setting_that_is_on_or_that_the_data_lack(recipe, words, names_flip):
    (few,) = advise([], 400, settings(*words, recipe=recipe), can_augment=False)
    assert ("data.flip" in few["try"]) is names_flip and "load_size" not in few["try"]


@pytest.mark.parametrize(("loss", "term"), [("hinge", "r1"), ("wasserstein", "gradient_penalty"), ("hinge", "r2")])
def test_advise_a_term_from_python_is_not_added_again(loss, term):
    passed = {"name": "from_memory", "term": term, "side": "d", "settings": "weight=10"}
    of = {"loss.name": loss, "g.optimizer.lr": 2e-4} | {f"penalties.0.{key}": value for key, value in passed.items()}
    for sign in (looks(d_saturation=[0.91, 0.97]), looks(diversity=[0.9, 0.1, 0.1, 0.1])):
        for advice in advise(sign, MANY, of):
            assert not [key for key in advice["changes"] if key.startswith("penalties")]
    bare = {key: value for key, value in of.items() if not key.startswith("penalties")}
    assert advise(looks(d_saturation=[0.91, 0.97]), MANY, bare)[0]["changes"].keys() == {"penalties.0"}


def test_advise_missing_and_infinite_values_are_skipped():
    nan = float("nan")
    history = [{"kimg": 1}, *looks(d_saturation=[nan, float("inf"), nan], diversity=[nan, nan, nan]), *scores(nan, nan)]
    assert names(history) == []
    broken = looks(diversity=[0.9, 0.1, nan, 0.1])
    assert names(broken) == ["mode_collapse"]


def test_advise_distances_of_other_extractor_are_ignored():
    assert names([{"fd[mnist]": 1.0}, *scores(50, 60, 55)]) == []
    assert names([{"fd[mnist]": 100.0}, *scores(8, 20, 30)]) == ["score_diverges"]


def test_advise_every_rule_has_a_test():
    shown = {name for _, expected in (*SIGNS, *SUSPICIOUS) for name in expected} | {"d_overfits"}
    assert [rule.name for rule in RULES if rule.name not in shown] == []


def test_advise_measurement_of_untrained_networks_is_no_sign():
    untrained = {"kimg": 0.0, "d/accuracy_train": 0.2, "d/accuracy_fake": 0.2}
    of = settings("d.optimizer.lr=1e-5")
    assert names([untrained, {**untrained, "kimg": 2.5}], of=of) == []
    assert names([untrained, {**untrained, "kimg": 2.5}, {**untrained, "kimg": 5.0}], of=of) == ["d_behind"]


def test_advise_names_setting_value_and_number():
    (advice,) = advise(looks(d_saturation=[0.91, 0.97]), MANY, settings("d.optimizer.lr=0.03"))
    assert advice["changes"] == {"d.optimizer.lr": 1e-3}
    assert advice["try"] == "d.optimizer.lr is 0.03: try 0.001."


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
@pytest.mark.parametrize("recipe", ["digits", "vanilla-mnist", "sngan-cifar10"])
def test_advise_changes_a_setting_that_exists_to_another_value(rule, recipe):
    before = settings(recipe=recipe)
    assert re.fullmatch(r"[A-Z][^.]*(\.\w[^.]*)*\.", rule.means), "one sentence"
    changed = rule.changes(before, can_augment=True)
    assert changed or rule.otherwise or not rule.remedies
    words = [f"{key}={as_flow(value)}" for key, value in changed.items()]
    assert (settings(*words, recipe=recipe) != before) == bool(changed)


def advised_again(rule, words):
    """Follow a rule's advice until it has none, as often as 20 times."""
    followed = []
    for _ in range(20):
        changed = rule.changes(settings(*words, *followed), can_augment=True)
        if not changed:
            return followed
        followed += [f"{key}={as_flow(value)}" for key, value in changed.items()]
    return followed


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_no_advice_names_what_is_on_already(rule):
    words = ["penalties=[]", "d.optimizer.lr=0.03", "d.updates_per_step=20", "g.precision=bf16", "g.ema=null"]
    followed = advised_again(rule, words)
    assert len(followed) == len(set(followed))
