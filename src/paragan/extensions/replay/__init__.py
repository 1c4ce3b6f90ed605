"""Steps of a run again, with the values inside (`paragan replay`). For the question why a run diverged.

State: equal bit for bit on CPUs in the tests; schemes whose steps depend on time are refused.
"""
