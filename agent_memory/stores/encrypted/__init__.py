"""A wrapper of any store that encrypts content before it is stored."""
