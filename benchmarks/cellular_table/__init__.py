"""Cellular training on one core, on workers and in an upstream-style loop, measured: `paragan bench cellular`."""
