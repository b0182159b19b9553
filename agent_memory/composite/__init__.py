"""Several memories as one: reads go to all in parallel, writes to one by a rule."""
