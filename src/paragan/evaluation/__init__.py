"""How good a generator is: samples, features, metrics, and what happens to their numbers."""
