"""The laws of training, tried on a user's own networks."""
