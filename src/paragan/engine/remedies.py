"""Remedies: which settings of a run to change, and to what, given its settings.

A remedy is a function of all settings by dotted key. It returns the settings to change with their new values; nothing
where it does not apply, or is on already. Ranges are those of the recipes; others count only with a sign of failure.
"""

from collections.abc import Callable, Mapping
from typing import Any

Settings = Mapping[str, Any]  # values by dotted key
Remedy = Callable[[Settings], Settings]

_ADAPTIVE = ("Adam", "AdamW", "NAdam", "RAdam", "Adamax", "RMSprop", "AdaBelief", "OptimisticAdam")
# of learning rates of Adam. Recipes: 5e-5 to 2.5e-3, D and G within a factor of 4 of one another
_SLOW, _FAST = 5e-5, 3e-3
_USUAL_RATES = (2e-4, 5e-4)
_MAX_RATIO = 10.0
_MAX_UPDATES = 5  # of D in a step: Gulrajani et al. 2017
_MIN_BATCH = 8
_SMALL_SIDE = 64  # pixels, up to which R1 with weight 1 suffices and 50 is too much; ten times of each above
_HEAVY = 50.0
_GRADIENT_PENALTIES = ("r1", "r2", "approximate_r1", "approximate_r2", "gradient_penalty")
_R1 = {"name": "r1", "weight": 1, "interval": 8}
AUGMENT = "augment.name"


def outliers(settings: Settings) -> Settings:
    """Return the changes of all settings that are far from what trains elsewhere."""
    changes: dict[str, object] = {}
    for remedy in (usual_rates, usual_momentum, usual_updates, usual_batch, lighter_penalty, wasserstein_penalty):
        changes |= remedy(settings)
    return changes


def usual_rates(settings: Settings) -> dict[str, float]:
    """Set a rate that is extreme to the other player's, where that is usual, or to the nearest usual one."""
    rates = {side: rate for side in "gd" if (rate := _rate(settings, side)) is not None}
    extreme = {side: rate for side, rate in rates.items() if not _SLOW <= rate <= _FAST}
    if len(rates) == 2 and not extreme and max(rates.values()) >= _MAX_RATIO * min(rates.values()):
        side = min(rates, key=lambda side: _is_usual(rates[side]))
        extreme = {side: rates[side]}
    changes = {}
    for side, rate in extreme.items():
        others = [other for name, other in rates.items() if name != side and _is_usual(other)]
        low, high = _USUAL_RATES
        changes[f"{side}.optimizer.lr"] = others[0] if others else min(max(rate, low), high)
    return changes


def _rate(settings: Settings, side: str) -> float | None:
    """Return the learning rate of a player with an adaptive optimiser; None for others."""
    rate = settings.get(f"{side}.optimizer.lr")
    is_adaptive = str(settings.get(f"{side}.optimizer.name")).rpartition(".")[2] in _ADAPTIVE
    return rate if is_adaptive and isinstance(rate, int | float) else None


def _is_usual(rate: float) -> bool:
    low, high = _USUAL_RATES
    return low / 2 <= rate <= high * 2


def usual_momentum(settings: Settings) -> dict[str, list[float]]:
    """Take the momentum out of fast optimisers: with it G and D swing around one another."""
    changes = {}
    for side in "gd":
        key = f"{side}.optimizer.arguments.betas"
        rate = _rate(settings, side)
        betas = settings.get(key, [0.9, 0.999])  # torch's default
        if rate is not None and rate > _USUAL_RATES[1] and betas[0] >= 0.9:
            changes[key] = [0.0, 0.99]
    return changes


def usual_updates(settings: Settings) -> dict[str, int]:
    """Update D as often as G."""
    return {"d.updates_per_step": 1} if settings.get("d.updates_per_step", 1) > _MAX_UPDATES else {}


def usual_batch(settings: Settings) -> dict[str, int]:
    """Raise a batch of few images."""
    return {"train.batch": 32} if settings.get("train.batch", 64) < _MIN_BATCH else {}


def lighter_penalty(settings: Settings) -> dict[str, float]:
    """Lower a penalty on D's gradients that leaves D nothing to learn."""
    size = settings.get("data.size") or 0
    heavy = _HEAVY if isinstance(size, int) and size <= _SMALL_SIDE else 10 * _HEAVY
    keys = [key for key in _penalty_keys(settings) if _weight(settings, key) > heavy]
    return dict.fromkeys(keys, 1.0 if heavy == _HEAVY else 10.0)


def wasserstein_penalty(settings: Settings) -> Settings:
    """Give a Wasserstein D what bounds its slope."""
    is_bounded = bool(_penalty_keys(settings)) or settings.get("model.d_norm") == "spectral"
    if settings.get("loss.name") != "wasserstein" or is_bounded:
        return {}
    return {f"penalties.{_num_penalties(settings)}": {"name": "gradient_penalty", "weight": 10}}


def _penalty_keys(settings: Settings) -> list[str]:
    """Return the keys of the weights of the penalties on D's gradients; in a program's term there is none to change."""
    places = [f"penalties.{n}" for n in range(_num_penalties(settings))]
    names = [settings.get(f"{place}.term", settings.get(f"{place}.name")) for place in places]
    return [f"{place}.weight" for place, name in zip(places, names, strict=True) if name in _GRADIENT_PENALTIES]


def _weight(settings: Settings, key: str) -> float:
    """Return a constant weight; 0 for one that changes along the run."""
    weight = settings.get(key)
    return float(weight) if isinstance(weight, int | float) else 0.0


def _num_penalties(settings: Settings) -> int:
    return sum(key.startswith("penalties.") and key.endswith(".name") for key in settings)


def add_penalty(settings: Settings) -> Settings:
    """Add R1 where D has no penalty on its gradients."""
    return {} if _penalty_keys(settings) else {f"penalties.{_num_penalties(settings)}": _R1}


def heavier_penalty(settings: Settings) -> dict[str, float]:
    """Raise the penalties on D's gradients five times."""
    weights = {key: _weight(settings, key) for key in _penalty_keys(settings)}
    return {key: 5 * weight for key, weight in weights.items() if 0 < weight < _HEAVY}


def augment(settings: Settings) -> dict[str, str]:
    """Augment what D sees."""
    return {} if settings.get(AUGMENT) else {AUGMENT: "diffaugment"}


def float32(settings: Settings) -> dict[str, str]:
    """Compute in float32 what was set to 16 bits."""
    keys = [f"{side}.precision" for side in "gd"]
    return {key: "fp32" for key in keys if settings.get(key, "auto") not in ("auto", "fp32")}


def average(settings: Settings) -> dict[str, float]:
    """Average G's weights."""
    return {} if "g.ema.half_life_kimg" in settings else {"g.ema.half_life_kimg": 5.0}


def slower(*sides: str, factor: float = 2.0) -> Remedy:
    """Return the remedy that divides the rates of these players."""

    def remedy(settings: Settings) -> dict[str, float]:
        keys = [f"{side}.optimizer.lr" for side in sides]
        return {key: float(f"{settings[key] / factor:.3g}") for key in keys if key in settings}

    return remedy


def faster(side: str) -> Remedy:
    """Return the remedy that doubles a player's rate."""
    return slower(side, factor=0.5)
