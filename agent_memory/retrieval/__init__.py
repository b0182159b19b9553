"""Features of records, and their ranking by relevance to a question. Pure."""
