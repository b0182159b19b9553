"""Facts and their history: what was claimed, what holds, what was known when. Pure."""
