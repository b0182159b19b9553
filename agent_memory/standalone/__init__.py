"""One part of a memory alone: a chat history, a vector index, or nothing at all."""
