"""A store that encrypts content before any other store stores it."""
