"""Parts of a memory for separate use: a chat history, vector and word indexes, a null memory."""
