"""Values and decisions that use no store, model or network."""
