# Set-up in two commands: `make demo` shows the tool at work, `make test` runs the test suite.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# SYSTEM=1 uses the torch and torchvision that PYTHON can import already (a CPU-only build, say) instead of installing them.
SYSTEM ?=
CONSTRAIN := $(if $(SYSTEM),grep -v '^torch',cat) constraints.txt
INSTALL := $(BIN)/python -m pip install --disable-pip-version-check --constraint $(VENV)/constraints.txt

.PHONY: demo test slow check format bench papers gallery train-demo docs dist smoke clean help

help:
	@echo "make demo        install into .venv and audit the two embedded classifiers"
	@echo "make test        install the test extra and run the default test suite"
	@echo "make check       ruff (format, lint), mypy --strict, then make test"
	@echo "make slow        the slow tests (minutes)"
	@echo "make demo SYSTEM=1 (and test, ...)  with the torch and torchvision that PYTHON has, instead of downloading them"
	@echo "make docs        docs/ as a site with a reference of the Python API, into site/"
	@echo "make dist        sdist and wheel into dist/"
	@echo "make smoke       build the wheel, install it into a fresh environment and try it there (SMOKE='--python python3.13 --extra timm')"
	@echo "make bench       the benchmarks, by hand on a quiet machine"
	@echo "make papers      the papers' tables and figures again, into docs/papers (ONLY=han-fig4 for one); needs ../shared"
	@echo "make gallery     audits of well-known networks, into docs/gallery (ONLY=photos for one page); needs ../shared"
	@echo "make train-demo  train the embedded classifiers again"

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "robaudit needs Python 3.11 or later; set PYTHON=/path/to/python3.11"; exit 2; }
ifeq ($(SYSTEM),)
	$(PYTHON) -m venv $(VENV)
else
	@$(PYTHON) -c 'import torch, torchvision' || { echo "SYSTEM=1 needs a PYTHON that imports torch and torchvision; set PYTHON=/path/to/python"; exit 2; }
	$(PYTHON) -m venv --system-site-packages $(VENV)
	$(PYTHON) -c 'import pathlib, torch; print(pathlib.Path(torch.__file__).parents[1])' > "$$(echo $(VENV)/lib/python3*/site-packages)/system.pth"
endif

$(VENV)/installed: pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing robaudit into $(VENV)$(if $(SYSTEM),, (torch is large: this can take some minutes; README says how to use a small one))"
	@$(CONSTRAIN) > $(VENV)/constraints.txt
	$(INSTALL) --editable '.[report]'
	@touch $@

$(VENV)/installed-test: pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing robaudit and its test extra into $(VENV)$(if $(SYSTEM),, (torch is large: this can take some minutes; README says how to use a small one))"
	@$(CONSTRAIN) > $(VENV)/constraints.txt
	$(INSTALL) --editable '.[test]'
	@touch $(VENV)/installed $@

demo: $(VENV)/installed
	$(BIN)/robaudit demo

# Compiled files are kept even where the environment says otherwise: else every process that a test starts compiles the package again.
test slow: export PYTHONDONTWRITEBYTECODE =

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

docs: $(VENV)/installed-test
	$(BIN)/python -m tests.research.site site

dist: $(VENV)/installed-test
	$(BIN)/python -m build --outdir dist .
	rm -rf build

# --shared installs the wheel beside the packages of .venv; other options download torch.
SMOKE ?= --shared
smoke: $(VENV)/installed-test
	$(BIN)/python -m tests.research.release $(SMOKE)

bench: $(VENV)/installed-test
	$(BIN)/python -m tests.research.benchmarks

papers: $(VENV)/installed-test
	$(BIN)/python -m tests.research.papers $(ONLY)

gallery: $(VENV)/installed-test
	$(BIN)/python -m tests.research.gallery $(ONLY)

train-demo: $(VENV)/installed
	$(BIN)/python -m robaudit.demo.train

clean:
	rm -rf $(VENV) build dist site *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
