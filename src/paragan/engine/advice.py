"""Advice on common failures of GAN training: a sign in the measurements, its cause, and what to change."""

from collections.abc import Mapping
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from paragan.engine import signs
from paragan.engine.remedies import (
    AUGMENT,
    Remedy,
    Settings,
    add_penalty,
    augment,
    average,
    faster,
    float32,
    heavier_penalty,
    outliers,
    slower,
)
from paragan.engine.signs import History, Sign, lasting, mean_accuracy

# Karras et al. 2020, "Training Generative Adversarial Networks with Limited Data", figure 1: the fewer images, the
# sooner D overfits, with a few thousand long before G has converged. Advice before any sign needs fewer still.
_FEW_IMAGES = 1000
Advice = dict[str, Any]
_NO_SETTING = "No setting is unusual: start from a checkpoint before it, or try other networks or more images"


@dataclass(frozen=True, kw_only=True)
class AdviceRule:
    """One rule: a sign of a failure, its likely cause, and the remedies.

    sign: returns the value that triggers the rule at the end of a history, else None. remedies: the first that
    changes a setting is the advice, after those of all settings that are far from usual (`remedies.outliers`).
    otherwise: what to do where none does; None: no advice. begin: words before the remedy.
    """

    name: str
    sign: Sign
    means: str
    remedies: tuple[Remedy, ...] = ()
    otherwise: str | None = _NO_SETTING
    begin: str = ""

    def changes(self, settings: Settings, can_augment: bool) -> Settings:
        """Return the settings to change, with their new values; none that would be unusual themselves."""
        if unusual := outliers(settings):
            return unusual
        candidates = (remedy(settings) for remedy in self.remedies)
        allowed = (changes for changes in candidates if can_augment or AUGMENT not in changes)
        return next((changes for changes in allowed if changes and not outliers({**settings, **changes})), {})


def advise(
    history: History, num_images: int, settings: Settings | None = None, can_augment: bool = True
) -> tuple[Advice, ...]:
    """Return the advice of all rules that hold now; the caller reports each of them once.

    Each has `name` of the rule, `value` that triggered it, `means`: the likely cause, `try`: the remedy, `changes`:
    settings to change, with their new values. history: telemetry, scores and log points by name, oldest first; what
    is not finite is skipped. num_images: training images, 0 of a stream and of what is no image. settings: of the run,
    by dotted key. can_augment: False for pairs, which would lose their conditions, and for what is no image.
    """
    settings = settings or {}
    is_small = 0 < num_images < _FEW_IMAGES and not settings.get(AUGMENT)
    advice = [_few_images(num_images, settings, can_augment)] if is_small else []
    for rule in RULES:
        if (value := rule.sign(history)) is None:
            continue
        changes = rule.changes(settings, can_augment)
        remedy = _describe_changes(changes, settings) if changes else rule.otherwise
        if remedy is not None:
            advice.append(_entry(rule.name, value, rule.means, f"{rule.begin}{remedy}", changes))
    return tuple(advice)


def _few_images(num_images: int, settings: Settings, can_augment: bool) -> Advice:
    means = "The data set is small: D usually memorizes it before G has learned much."
    changes = augment(settings) if can_augment else {}
    otherwise = "Add pairs" if settings.get("data.flip", True) else "Try data.flip=true, or add pairs"
    remedy = _describe_changes(changes, settings) if changes else otherwise
    return _entry("few_images", num_images, means, remedy, changes)


def _entry(name: str, value: float, means: str, remedy: str, changes: Settings) -> Advice:
    return {"name": name, "value": value, "means": means, "try": f"{remedy}.", "changes": dict(changes)}


def _describe_changes(changes: Settings, settings: Settings) -> str:
    """Return the settings to change: what each is, and what to try."""
    parts = []
    for key, value in changes.items():
        now = "not set" if settings.get(key) is None else as_flow(settings[key])
        parts.append(f"{key} is {now}: try {as_flow(value)}")
    return "; ".join(parts)


def as_flow(value: object) -> str:
    """Return a value in the flow style of YAML, as the command line takes it."""
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key}: {as_flow(item)}' for key, item in value.items())}}}"
    return f"{value:g}" if isinstance(value, float) else str(value)


_ACCURACIES = ("d/accuracy_train", "d/accuracy_fake")

RULES = (
    AdviceRule(
        name="term_explodes",
        sign=signs.large_terms,
        means="A term of D's loss has exploded: D's slopes grow without limit.",
        remedies=(float32, add_penalty, slower("g", "d")),
    ),
    AdviceRule(
        name="d_overfits",
        sign=lasting(
            ("d/overfitting", "d/accuracy_train", "d/accuracy_held_out"), signs.overfits, count=2, value=itemgetter(0)
        ),
        means="D overfits: it recognizes its training images and takes held-out ones for generated, "
        "which leads G to copy.",
        remedies=(augment, add_penalty, heavier_penalty),
        otherwise="add images",
        begin="If the score no longer falls: ",
    ),
    AdviceRule(
        name=signs.D_SATURATED,
        sign=lasting(("d/saturation",), lambda share: share > signs.SATURATED, count=2),
        means="D's loss is saturated on nearly all images, so its gradients vanish: D is too strong "
        "or its logits diverged.",
        remedies=(add_penalty, slower("d")),
    ),
    AdviceRule(
        name="d_too_strong",
        sign=lasting(_ACCURACIES, lambda real, fake: min(real, fake) > signs.RIGHT, count=3, value=min, needs_bad=True),
        means="D classifies every image correctly and the score does not improve: D is too strong for G.",
        remedies=(add_penalty, heavier_penalty, slower("d")),
    ),
    AdviceRule(
        name="d_too_weak",
        sign=lasting(
            (*_ACCURACIES, "d/saturation"),
            lambda real, fake, saturation: (real + fake) / 2 < signs.UNDECIDED and saturation < signs.CERTAIN,
            count=16,  # four times as long as in good runs: 10 kimg, four measurements, before the score improves
            value=mean_accuracy,
            needs_bad=True,
        ),
        means="D cannot distinguish real from generated images although the score is bad: G gets no useful gradient.",
        remedies=(faster("d"),),
    ),
    AdviceRule(
        name=signs.D_CERTAIN_AND_WRONG,
        sign=lasting((*_ACCURACIES, "d/saturation"), signs.is_certain_and_wrong, count=2, value=mean_accuracy),
        means="D is confident on many images and wrong on most: the learning rates of both players are too large.",
        remedies=(slower("g", "d", factor=10.0),),
    ),
    AdviceRule(
        name="gradients_out_of_balance",
        sign=signs.out_of_balance,
        means="One player's gradients are far larger than the other's: one player hardly learns or diverges.",
        remedies=(add_penalty, slower("g", "d")),
    ),
    AdviceRule(
        name=signs.MODE_COLLAPSE,
        sign=signs.same_samples,
        means="Samples are much closer together than real images are: mode collapse.",
        remedies=(add_penalty, slower("g"), slower("d")),
    ),
    AdviceRule(
        name="out_of_reach",
        sign=signs.out_of_reach,
        means="G reaches only a part of the values of real images.",
        otherwise="End G in a function with the range of the data (tanh for images, which are in [-1, 1]), or none",
    ),
    AdviceRule(
        name="coverage_lost",
        sign=signs.coverage_lost,
        means="Samples cover far fewer of the held-out images than before: G has dropped modes.",
        remedies=(average, add_penalty, slower("g")),
    ),
    AdviceRule(
        name=signs.SCORE_DIVERGES,
        sign=signs.diverges,
        means="The score has been far from its best for several evaluations: the run has overfitted or diverged.",
        remedies=(average, augment, add_penalty, slower("g", "d")),
    ),
    AdviceRule(
        name="weights_explode",
        sign=signs.weights_jump,
        means="A layer's largest singular value has jumped far above all earlier values, "
        "which often precedes collapse.",
        remedies=(float32, slower("g", "d")),
    ),
    # below, signs that healthy runs have, too: a cause only together with a setting that is far from usual
    AdviceRule(
        name="weights_grow",
        sign=signs.weights_grow,
        means="A layer's weights have grown several times in their first updates.",
        otherwise=None,
    ),
    AdviceRule(
        name="d_ahead",
        sign=lasting(
            _ACCURACIES, lambda real, fake: (real + fake) / 2 > signs.MOSTLY_RIGHT, count=2, value=mean_accuracy
        ),
        means="D is right on nearly all images from the start: G does not keep up.",
        otherwise=None,
    ),
    AdviceRule(
        name="d_behind",
        sign=lasting(_ACCURACIES, lambda real, fake: (real + fake) / 2 < signs.UNDECIDED, count=2, value=mean_accuracy),
        means="D cannot distinguish real from generated images.",
        otherwise=None,
    ),
    AdviceRule(
        name="d_flat",
        sign=lasting(("d/real", "d/fake"), lambda real, fake: abs(real - fake) < signs.FLAT, count=4),
        means="D's outputs for real and for generated images hardly differ.",
        otherwise=None,
    ),
)
