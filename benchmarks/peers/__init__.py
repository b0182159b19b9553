"""Other memories as contenders. Each is a script that runs in its own virtualenv."""
