"""What was observed at which place: how near it is, how sure it is still, and an index. Pure."""
