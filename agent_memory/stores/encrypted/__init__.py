"""A store that encrypts content, and stores it in any other store."""
