"""Parts that schemes on several ranks are built from."""
