"""Every benchmark imports: what it measures is in the package, under the names that it uses."""

import importlib
import pkgutil

import pytest

import benchmarks

NAMES = [module.name for module in pkgutil.walk_packages(benchmarks.__path__, "benchmarks.")]


@pytest.mark.parametrize("name", NAMES)
def test_benchmark_imports(name):
    importlib.import_module(name)
