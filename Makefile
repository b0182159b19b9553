# Uses the virtualenv that the README's test command sets up.
BIN ?= .venv/bin

.PHONY: test test-all check format ci

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

ci:
	.ci/run
