"""A whole turn in one call: recall, ask the model, run its tools, store."""
