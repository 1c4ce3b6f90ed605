"""Advice about a damaged file: settings where a run trains on it, none of them for a file of a user."""

import io
import pickle

import numpy as np
import pytest
from PIL import Image

from paragan.core.errors import DataError
from paragan.datasets._image_decoding import check_values, decode_image
from paragan.datasets._image_values import read_levels
from paragan.datasets._options import PixelOptions
from paragan.datasets.base.whole_images import advising_a_user, decode_cropped, decode_whole


def encoded(values, kind="PNG"):
    content = io.BytesIO()
    Image.fromarray(values).save(content, kind)
    return content.getvalue()


CUT = encoded(np.random.default_rng(0).integers(256, size=(30, 30), dtype=np.uint8))[:400]
BANDS = encoded(np.zeros((4, 4), np.uint8))


def values(data):
    return check_values(np.array([0.0, 7.0]), "a.tif")


def bands(data):
    return list(read_levels(BANDS, "a.png", PixelOptions(channels=5, range=(0, 1))))


@pytest.mark.parametrize("data", [CUT, b"no image", b""])
@pytest.mark.parametrize("decode", [decode_whole, decode_cropped])
def test_a_file_of_a_user_has_no_advice_of_training(data, decode):
    with pytest.raises(DataError) as error:
        decode(data, "a.png", 1) if decode is decode_whole else decode(data, "a.png", (1, 8, 8))
    text = str(error.value)
    assert text.startswith("a.png: ") and text.endswith("; correct, convert or replace the file")
    with pytest.raises(DataError, match=r"list all such files with `.*data check`$"):
        decode_image(data, "a.png")


@pytest.mark.parametrize(("call", "setting"), [(values, "data.range=[0,7]"), (bands, "data.channels=1")])
def test_settings_that_do_not_fit_are_advised_in_training_alone(call, setting):
    with pytest.raises(DataError) as error:
        call(None)
    assert setting in str(error.value)
    with pytest.raises(DataError) as error, advising_a_user():
        call(None)
    assert "data." not in str(error.value)


def test_an_error_with_advice_travels_between_processes():
    error = pickle.loads(pickle.dumps(DataError("a.png: damaged", "pass data.damaged=skip")))  # noqa: S301 its own
    assert (str(error), error.problem) == ("a.png: damaged; pass data.damaged=skip", "a.png: damaged")
    assert str(DataError("no advice")) == "no advice"
