"""Settings, and where they come from: code, the environment, a file."""
