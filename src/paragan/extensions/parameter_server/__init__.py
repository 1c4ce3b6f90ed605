"""Scheme `parameter_server`: rank 0 holds both players, the others send gradients. For comparisons with the textbook.

State: tested with ranks of one machine; no recipe uses it (docs/how-to/machines/parameter-server.md).
"""
