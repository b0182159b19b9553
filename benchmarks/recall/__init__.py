"""Whether searches and contexts bring what a question needs."""
