"""Search features and ranking: the records of a history that are relevant to a question. Pure."""
