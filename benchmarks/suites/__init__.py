"""Runs the frameworks' own tests with our classes in place of theirs: `make suites`."""
