# Two commands do everything on a machine with Python >= 3.11, pip and make:
#   make demo    sets up .venv and shows what assistance brings
#   make test    sets up .venv and runs the quick tests   (make test-all: the slow ones too)
# Tests that need an extra which is not installed skip and say so. EXTRAS=all installs all of them; then a test that
# skips for want of one fails. EXTRAS= installs none: what "pip install gal-learn" brings.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
EXTRAS ?= node
empty :=
comma := ,
GROUPS := dev$(if $(EXTRAS),$(comma)$(EXTRAS))
STAMP := $(VENV)/.installed-$(subst $(comma),-,$(GROUPS))

.PHONY: demo test test-all lint bench wheel clean

demo: $(VENV)/.installed-node
	$(BIN)/gal demo

test: $(STAMP)
	$(BIN)/python -m pytest $(if $(filter all,$(EXTRAS)),--no-skips)

test-all: $(STAMP)
	$(BIN)/python -m pytest -m "slow or not slow" $(if $(filter all,$(EXTRAS)),--no-skips)

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(STAMP)
	$(BIN)/python benchmarks/engine.py

wheel:
	$(PYTHON) .ci/wheel.py

$(VENV)/.installed-node: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[node]"
	touch $@

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[$(GROUPS)]"
	touch $@

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
