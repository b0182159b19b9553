"""Token counting without a network."""
