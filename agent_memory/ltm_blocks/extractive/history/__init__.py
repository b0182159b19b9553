"""Facts and their history: claims, current facts, and what was known when. Pure."""
