# Uses the virtualenv that the README's test command sets up.
BIN ?= .venv/bin

.PHONY: test test-all check format reference docs frameworks suites ci

test:
	$(BIN)/pytest

test-all:
	$(BIN)/pytest --layer all

check:
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/lint-imports

format:
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

# docs/reference, from docstrings and --help; a test fails where it is stale
reference:
	$(BIN)/python docs/make_reference.py

# The site, in build/site; a dead link, or a page that no index names, is an error.
docs:
	$(BIN)/sphinx-build --fail-on-warning --keep-going --nitpicky --quiet docs build/site

# Installs all frameworks into build/frameworks, and tests the adapter and an agent of each.
frameworks:
	$(BIN)/python -m tests.frameworks build/frameworks $(ONLY)

# Frameworks' own tests, with our classes in the place of theirs: SUITES names the folder of checkouts
suites:
	$(BIN)/python -m benchmarks suites $(SUITES) $(if $(ONLY),--only $(ONLY))

ci:
	.ci/run
