"""What happens to images, against the plainest code one image at a time, with the draws read by name; float64."""

import math

import pytest
import torch

from paragan.augment._corruption import multiply_bands, scale_bands
from paragan.augment._draws import Draws
from paragan.augment._geometry import geometric_moves, pixel_moves
from paragan.augment.ada import Augment, Options
from paragan.core import rng
from paragan.core.errors import ConfigError
from paragan.core.types import Rows

ROWS = Rows(step=0, first=0, count=60, total=60)
MOVES = ("scale", "rotation", "stretch", "second_rotation", "move")


def images(*shape, rows=ROWS):
    return rng.uniform(1, "x", rows, shape).double() * 2 - 1


def augment(p, pipeline="bgcfnc"):
    return Augment(Options(pipeline=pipeline, target=None, p=p))


def draws(x, p):
    return Draws(7, "s", ROWS, x, p)


def test_with_p_0_nothing_happens():
    x = images(3, 9, 9).float()
    assert torch.equal(augment(0.0)(x, 7, "s", ROWS), x)
    assert torch.equal(Augment(Options())(x, 7, "s", ROWS), x)


def test_a_larger_p_happens_to_the_same_images_and_more():
    x = images(3, 8, 8)
    before = torch.zeros(60, dtype=torch.bool)
    for p, share in ((0.05, 0.45), (0.2, 0.9), (0.9, 1.0)):
        changed = (augment(p, "bgc")(x, 7, "s", ROWS) != x).flatten(1).any(1)
        assert (changed | ~before).all()
        assert 0.6 * share < changed.double().mean() <= 1
        before = changed


@pytest.mark.parametrize(("height", "width", "turns"), [(16, 16, {0, 1, 2, 3}), (24, 8, {0, 2})])
def test_pixels_are_copied_from_where_they_were(height, width, turns):
    """Mirrored, turned, then shifted by up to an eighth of a side; what comes in is the mirror image."""
    x, seen = images(2, height, width), set()
    drawn, down, across = draws(x, 1.0), height // 8, width // 8
    for n, (image, out) in enumerate(zip(x, augment(1.0, "b")(x, 7, "s", ROWS), strict=True)):
        found = []
        for flip in (False, True):
            for turn in turns:
                moved = torch.rot90(image.flip(2) if flip else image, turn, (1, 2))
                framed = torch.cat([moved[:, :down].flip(1), moved, moved[:, -down:].flip(1)], 1)
                framed = torch.cat([framed[..., :across].flip(2), framed, framed[..., -across:].flip(2)], 2)
                for low in range(-down, down + 1):
                    for right in range(-across, across + 1):
                        if torch.equal(framed[:, down - low :, across - right :][:, :height, :width], out):
                            found.append((flip, turn, low, right))
        shifts = [
            round((2 * float(drawn[name][n]) - 1) * side / 8)
            for name, side in (("shift_y", height), ("shift_x", width))
        ]
        turn = -int(4 * drawn["turn"][n]) % 4  # torch turns the other way
        assert found == [(bool(drawn["flip"][n] < 0.5), turn if turn in turns else 0, *shifts)]
        seen.add(found[0])
    assert {turn for _, turn, _, _ in seen} == turns
    assert {low for *_, low, _ in seen} == set(range(-down, down + 1))
    assert {right for *_, right in seen} == set(range(-across, across + 1))
    assert {flip for flip, *_ in seen} == {False, True}


def test_an_image_that_was_only_mirrored_is_exact():
    x = images(3, 16, 16).float()
    drawn = draws(x, 0.1)
    others = [drawn.happens(name) for name in ("turn", "shift", "scale", "stretch", "move")]
    others += [drawn.rotates("rotation"), drawn.rotates("second_rotation")]
    only = drawn.happens("flip") & (drawn["flip"] < 0.5) & ~torch.stack(others).any(0)
    assert only.any()
    assert torch.equal(augment(0.1, "bg")(x, 7, "s", ROWS)[only], x.flip(3)[only])


def matrix(name, values, i, height, width):
    """Of one move, forwards, in homogeneous coordinates."""
    found = torch.eye(3, dtype=torch.float64)
    if name in ("scale", "stretch"):
        factor = float(values[name][i])
        found[0, 0], found[1, 1] = factor, factor if name == "scale" else 1 / factor
    elif name == "move":
        found[0, 2], found[1, 2] = values["move_x"][i] * width, values["move_y"][i] * height
    else:
        cos, sin = float(values[f"{name} cos"][i]), float(values[f"{name} sin"][i])
        assert math.hypot(cos, sin) == pytest.approx(1)
        found[:2, :2] = torch.tensor([[cos, -sin], [sin, cos]])
    return found


@pytest.mark.parametrize("p", [0.3, 1.0])
def test_the_map_is_the_inverse_of_one_move_after_the_other(p):
    x = images(1, 12, 20)
    drawn = draws(x, p)
    start = pixel_moves(x, drawn)
    happens, inverse = geometric_moves(x, drawn, start)
    counts = dict.fromkeys(MOVES, 0)
    for i in range(60):
        forwards = torch.eye(3, dtype=torch.float64)
        forwards[:2] = start[i]
        forwards = torch.linalg.inv(forwards)
        before = sum(counts.values())
        for name in MOVES:
            if (drawn.rotates(name) if "rotation" in name else drawn.happens(name))[i]:
                forwards = matrix(name, drawn, i, 12, 20) @ forwards
                counts[name] += 1
        assert torch.allclose(torch.linalg.inv(forwards)[:2], inverse[i], atol=1e-9)
        assert bool(happens[i]) is (sum(counts.values()) > before)
    assert all(
        abs(count / 60 - (1 - (1 - p) ** 0.5 if "rotation" in name else p)) < 0.15 for name, count in counts.items()
    )


def test_strengths_are_the_paper_s():
    rows = Rows(step=0, first=0, count=40_000, total=40_000)
    drawn = Draws(0, "s", rows, torch.zeros(1, dtype=torch.float64), 0.5)
    deviations = {"scale": 0.2, "stretch": 0.2, "contrast": 0.5, "saturation": 1.0, "band_0": 1.0, "band_3": 1.0}
    for name, deviation in deviations.items():
        assert drawn[name].log2().std() == pytest.approx(deviation, rel=0.02)
        assert abs(drawn[name].log2().mean()) < 0.02
    for name, deviation in {"move_x": 0.125, "move_y": 0.125, "brightness": 0.2, "noise": 0.1}.items():
        assert drawn[name].std() == pytest.approx(deviation, rel=0.02)
    for name in ("rotation", "second_rotation", "hue"):
        angles = torch.atan2(drawn[f"{name} sin"], drawn[f"{name} cos"])
        assert (angles.min() + math.pi) < 0.01 > (math.pi - angles.max())
        assert angles.std() == pytest.approx(math.pi / 3**0.5, rel=0.02)


def colour_matrix(values, happens, i):
    """Homogeneous, of red, green and blue, one after the other."""
    v = torch.full((3, 1), 3**-0.5, dtype=torch.float64)
    along, one = v @ v.T, torch.eye(3, dtype=torch.float64)
    found = torch.eye(4, dtype=torch.float64)
    if happens("brightness")[i]:
        found[:3, 3] += values["brightness"][i]
    steps = []
    if happens("contrast")[i]:
        steps.append(one * values["contrast"][i])
    if happens("luma")[i] and values["luma"][i] < 0.5:
        steps.append(one - 2 * along)
    if happens("hue")[i]:
        generator = torch.tensor([[0, -1, 1], [1, 0, -1], [-1, 1, 0]], dtype=torch.float64) / 3**0.5
        angle = torch.atan2(values["hue sin"][i], values["hue cos"][i])
        steps.append(torch.linalg.matrix_exp(angle * generator))
    if happens("saturation")[i]:
        steps.append(along + (one - along) * values["saturation"][i])
    for step in steps:
        found[:3] = step @ found[:3]
    return found


def test_colour_is_one_matrix_after_the_other():
    x = images(3, 4, 5)
    still = augment(0.6, "bg")(x, 7, "s", ROWS)
    drawn = draws(x, 0.6)
    for i, out in enumerate(augment(0.6, "bgc")(x, 7, "s", ROWS)):
        m = colour_matrix(drawn, drawn.happens, i)
        expected = torch.einsum("ij,jhw->ihw", m[:3, :3], still[i]) + m[:3, 3, None, None]
        assert torch.allclose(out, expected, atol=1e-9)


def test_grey_has_brightness_contrast_and_the_flip():
    x = images(1, 4, 5)
    still = augment(0.6, "bg")(x, 7, "s", ROWS)
    drawn = draws(x, 0.6)
    for i, out in enumerate(augment(0.6, "bgc")(x, 7, "s", ROWS)):
        as_colour = torch.cat([still[i].expand(3, 4, 5), torch.ones(1, 4, 5, dtype=torch.float64)])
        expected = torch.einsum("ij,jhw->ihw", colour_matrix(drawn, drawn.happens, i), as_colour)[:3].mean(0, True)
        assert torch.allclose(out, expected, atol=1e-9)


def test_bands_are_amplified_along_both_axes():
    at = torch.arange(64, dtype=torch.float64) + 0.5
    gains = torch.tensor([[2.0, 3.0, 5.0, 7.0]], dtype=torch.float64)

    def by(down, right):
        wave = (torch.cos(math.pi * down / 64 * at)[:, None] * torch.cos(math.pi * right / 64 * at))[None, None]
        found = multiply_bands(wave, gains)
        factor = float((found * wave).sum() / wave.square().sum())
        assert torch.allclose(found, factor * wave, atol=1e-9)
        return factor

    assert by(0, 0) == pytest.approx(4)
    assert by(0, 12) == pytest.approx(2 * 3, rel=0.15)
    assert by(23, 0) == pytest.approx(5 * 2, rel=0.15)
    assert by(63, 63) == pytest.approx(49, rel=0.15)
    kept = images(2, 6, 9)
    assert torch.allclose(multiply_bands(kept, torch.ones(60, 4, dtype=torch.float64)), kept, atol=1e-12)


def test_a_louder_band_leaves_a_natural_image_s_power():
    """10/13 of it in the lowest band and 1/13 in each other; the mean shows the gain of the lowest."""
    x = torch.ones(60, 1, 4, 4, dtype=torch.float64)
    drawn = draws(x, 0.5)
    out = scale_bands(x, drawn)
    for i in range(60):
        gain, power = 1.0, (10 / 13, 1 / 13, 1 / 13, 1 / 13)
        for band in range(4):
            if drawn.happens(f"band_{band}")[i]:
                t = [1.0] * 4
                t[band] = float(drawn[f"band_{band}"][i])
                gain *= t[0] / math.sqrt(sum(w * f * f for w, f in zip(power, t, strict=True)))
        assert out[i].mean() == pytest.approx(gain**2)  # along both axes


def test_noise_and_a_hole():
    x = torch.ones(60, 2, 16, 16, dtype=torch.float64)
    quiet = augment(0.5, "bgcf")(x, 7, "s", ROWS)
    noisy, cut = augment(0.5, "bgcfn")(x, 7, "s", ROWS), augment(0.5)(x, 7, "s", ROWS)
    drawn = draws(x, 0.5)
    for i in range(60):
        spread = float(drawn["noise"][i].abs()) if drawn.happens("noise")[i] else 0.0
        assert (noisy[i] - quiet[i]).std() == pytest.approx(spread, rel=0.15)
        hole, expected = (cut[i] == 0).all(0), torch.zeros(16, 16, dtype=torch.bool)
        top, left = (16 * float(drawn[name][i]) - 4 for name in ("hole_y", "hole_x"))
        for row in range(16):
            for column in range(16):
                expected[row, column] = 0 < row + 0.5 - top < 8 and 0 < column + 0.5 - left < 8
        assert torch.equal(hole, expected & drawn.happens("hole")[i])
        assert torch.equal(cut[i][:, ~hole], noisy[i][:, ~hole])


def test_low_precision_comes_out_as_it_went_in():
    x = images(3, 8, 8).bfloat16()
    out = augment(0.7, "bgc")(x, 7, "s", ROWS)
    assert out.dtype == torch.bfloat16
    assert torch.equal(out, augment(0.7, "bgc")(x.float(), 7, "s", ROWS).bfloat16())


def test_samples_that_are_no_images_are_refused():
    with pytest.raises(ConfigError, match="augment needs images, but samples have shape"):
        augment(0.5)(torch.zeros(60, 7), 0, "s", ROWS)
