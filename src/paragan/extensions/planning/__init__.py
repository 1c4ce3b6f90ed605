"""Plan of a run before it starts: memory, times, settings for N workers. For people who pay for accelerators.

State: measured on CPUs (errors: docs/how-to/machines/scaling.md); forecasts of several accelerators never ran on them.
"""
