"""The frameworks' own tests, with our classes in the place of theirs: `make suites`."""
