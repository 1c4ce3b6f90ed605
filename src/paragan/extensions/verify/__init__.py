"""Laws of training, verified on a user's networks."""
