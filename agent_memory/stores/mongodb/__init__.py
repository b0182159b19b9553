"""A store in a MongoDB database, without transactions."""
