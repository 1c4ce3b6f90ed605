"""Samples of a data set of a program."""

import pytest

from paragan.core.errors import DataError
from paragan.datasets.base.samples import SampleForm


def test_the_form_of_samples_without_networks_is_a_mapping():
    with pytest.raises(DataError, match="sample 0 is a tuple"):
        SampleForm().of_first((1, 2))
