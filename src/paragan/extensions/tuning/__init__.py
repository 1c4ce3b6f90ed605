"""Search for settings by many short runs (`paragan tune`), with Optuna. For rates on data that no recipe knows.

State: measured on digits, also after `kill -9` (docs/how-to/train/tune.md).
"""
