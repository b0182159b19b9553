"""Facts and their history: claims, current facts, and what was known at an earlier time. Pure."""
