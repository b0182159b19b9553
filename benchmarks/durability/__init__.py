"""Whether acknowledged writes survive kills, races and long runs."""
