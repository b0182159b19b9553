"""Settings from code, the environment, and files."""
