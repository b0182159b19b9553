"""A wrapper round any store: what was said is encrypted before it is kept."""
