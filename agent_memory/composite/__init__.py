"""Several memories as one: read in parallel, written by rule."""
