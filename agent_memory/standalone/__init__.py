"""Parts for separate use: a chat history, vector and word indexes, and a null memory."""
