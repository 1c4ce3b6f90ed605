"""Parts that strategies are built from."""
