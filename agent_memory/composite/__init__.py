"""Several memories as one. Reads go to all of them in parallel. A rule selects one for writes."""
