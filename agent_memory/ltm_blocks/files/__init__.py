"""Files under /memories as the Claude memory tool knows them: paths, edits, listings, replies.
Pure."""
