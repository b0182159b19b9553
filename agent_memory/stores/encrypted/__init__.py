"""A store that encrypts content, and stores the ciphertexts in another store."""
