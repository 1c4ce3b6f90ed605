"""Repetition of recorded steps, compared bit for bit (`paragan replay`). For finding out why a run diverged.

State: equal bit for bit on CPUs in the tests; schemes whose steps depend on time are refused.
"""
