# Set-up in two commands: `make demo` shows the tool at work, `make test` runs the test suite.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: demo test slow check format bench train-demo clean help

help:
	@echo "make demo        install into .venv and audit the two embedded classifiers"
	@echo "make test        install the test extra and run the default test suite"
	@echo "make check       ruff (format, lint), mypy --strict, then make test"
	@echo "make slow        the slow tests (minutes)"
	@echo "make bench       the benchmarks, by hand on a quiet machine"
	@echo "make train-demo  train the embedded classifiers again"

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "robaudit needs Python 3.11 or later; set PYTHON=/path/to/python3.11"; exit 2; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/installed: pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing robaudit into $(VENV) (torch is large: this can take some minutes)"
	$(INSTALL) --editable .
	@touch $@

$(VENV)/installed-test: pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing robaudit and its test extra into $(VENV) (torch is large: this can take some minutes)"
	$(INSTALL) --editable '.[test]'
	@touch $(VENV)/installed $@

demo: $(VENV)/installed
	$(BIN)/robaudit demo

test: $(VENV)/installed-test
	$(BIN)/python -m pytest --numprocesses auto --dist worksteal

slow: $(VENV)/installed-test
	$(BIN)/python -m pytest --numprocesses auto --dist worksteal -m slow

check: $(VENV)/installed-test
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(MAKE) test

format: $(VENV)/installed-test
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(VENV)/installed-test
	$(BIN)/python -m tests.benchmarks

train-demo: $(VENV)/installed
	$(BIN)/python -m robaudit.demo.train

clean:
	rm -rf $(VENV) build *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
