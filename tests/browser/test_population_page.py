"""A grid of cells in a real browser: tiles can be read and seen, and a telephone is wide enough."""

import pytest

from tests.browser import made_grid
from tests.browser.colours import contrast, luminance
from tests.browser.driver import NEEDED

pytestmark = NEEDED
SHADES = [*(f"h{n}" for n in range(9)), "hx"]


@pytest.fixture(
    scope="module",
    params=[(3, 3), (16, 16), (1, 64), pytest.param((64, 64), marks=pytest.mark.slow)],
    ids=lambda shape: "x".join(map(str, shape)),
)
def run(request, tmp_path_factory):
    return made_grid.make(tmp_path_factory.mktemp("run"), *request.param, 4)


TILES = """
const tile = document.createElement("td"), table = document.createElement("table");
table.className = "heat";
table.append(tile);
document.querySelector(".cells").append(table);
return arguments[0].map((shade) => {
  tile.className = shade;
  const drawn = getComputedStyle(tile);
  return [drawn.color, drawn.backgroundColor];
});
"""
CLEAR = "rgba(0, 0, 0, 0)"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_tile_can_be_read_and_is_drawn_in_its_colour(page, scheme):
    page.set_scheme(scheme)
    paper = page.run("return getComputedStyle(document.body).backgroundColor")
    found = page.run(TILES, SHADES)
    for shade, (ink, ground) in zip(SHADES, found, strict=True):
        behind = paper if ground == CLEAR else ground
        assert contrast(luminance(ink), luminance(behind)) >= 4.5, shade  # WCAG 2, level AA
    assert len({ground for _, ground in found}) == len(SHADES)
    low, high = (luminance(found[n][1]) for n in (0, 8))
    assert (low > high) == (scheme == "light")  # the least of it is nearest to the paper


BOXES = """
return [...document.querySelectorAll(".heat td")].map((one) => {
  const box = one.getBoundingClientRect();
  return [box.width, box.height];
});
"""


@pytest.mark.parametrize("width", [360, 1200])
def test_everything_is_visible_and_within_the_page_width(page, width):
    with page.screen(width):
        assert page.run("return document.documentElement.scrollWidth") <= width
        boxes = page.run(BOXES)
        assert len(boxes) >= 9 and all(w >= 8 and 8 <= h <= 60 for w, h in boxes)


def test_the_ring_is_around_the_best_tile(page):
    assert page.run("return document.querySelectorAll('.heat .top').length") == 1
