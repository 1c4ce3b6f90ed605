"""Tokens of one padded sample, without those of the padding."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from paragan.core.errors import ConfigError


def tokens_without_padding(extra: Mapping[str, Tensor], mask_1L: Tensor | None) -> Mapping[str, Tensor]:
    """Return what G returned of one sample, with `tokens` cut on their last axis.

    mask_1L: where the sample is not padded; None if it is not. `tokens_mask` (1, N) has the tokens
    that count; without it each of N tokens stands for L / N places. Raises `ConfigError` if that is
    no whole number.
    """
    tokens = extra.get("tokens")
    if tokens is None or mask_1L is None or tokens.dim() < 2:
        return extra
    if "tokens_mask" in extra:
        return {**extra, "tokens": tokens[..., extra["tokens_mask"][0].bool()]}
    length = int(mask_1L.sum())
    padded = mask_1L.shape[1]
    if length == padded:
        return extra
    count = tokens.shape[-1]
    if not count or padded % count:
        raise ConfigError(
            f"evaluation.metrics: G returns {count} tokens for a sample of {length} values padded to "
            f"{padded}, which is no multiple, so that those of the padding are unknown; return "
            "tokens_mask (B, N) next to tokens, or pass buckets that are multiples"
        )
    ratio = padded // count
    return {**extra, "tokens": tokens[..., : -(-length // ratio)]}
