"""Plan of a run before it starts: memory, times, settings for N workers. For people who pay for accelerators.

State: measured on CPUs (docs/scaling.md has the errors); forecasts of several accelerators never ran on them.
"""
