"""Which messages of a history bear on a question: lexical views, normalised, blended. Pure."""
