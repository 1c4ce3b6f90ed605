"""Strategies `pipeline` and `tensor`: one network over several devices. For networks that no device holds.

State: equal to one rank in the tests (float64); never measured on several accelerators.
"""
