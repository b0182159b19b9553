"""Whether a model answers right from a memory: one model answers, another judges blindly."""
