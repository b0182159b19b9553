"""Sessions as files: the lines of a snapshot, written, and checked as they are read. Pure."""
