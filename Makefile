# Every target builds what it needs in .venv: only Python 3.11+, make and git must be there.
PYTHON ?= python3
BIN := .venv/bin
IN_PROCESS := not slow and not servers and not cluster and not processes

.PHONY: demo demo-service setup-postgres test test-fast test-slow test-flower coverage lint bench clean

demo: .venv/.run-installed        ## aggregate a synthetic crowd privately and draw the result
	$(BIN)/shufflesum demo -o demo-output

demo-service: .venv/.dev-installed  ## client, shuffler and analyzer as separate programs on this machine
	$(BIN)/shufflesum demo --service

setup-postgres:                   ## the database that the service tests run against, where it is missing
	ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || command -v initdb >/dev/null || \
	  { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq postgresql; }

test: .venv/.dev-installed        ## lint, strict types, layering, tests
	$(BIN)/python -m tests.compiled & compiling=$$!; $(MAKE) --no-print-directory lint && wait $$compiling
	$(BIN)/pytest -n 2

test-fast: .venv/.dev-installed   ## the same without servers, clusters and processes
	$(BIN)/python -m tests.compiled & compiling=$$!; $(MAKE) --no-print-directory lint && wait $$compiling
	$(BIN)/pytest -n 2 -m "$(IN_PROCESS)"

coverage: .venv/.dev-installed    ## which lines the tests in one process reach (not those inside compiled kernels)
	$(BIN)/pytest -n 2 -m "$(IN_PROCESS)" --cov --cov-report=term-missing:skip-covered

test-slow: .venv/.dev-installed   ## the long statistical extras
	$(BIN)/pytest -n 2 -m slow

test-flower: .venv-flower/.installed  ## the adapter for Flower, whose pins are tight: in an environment of its own
	.venv-flower/bin/pytest tests/federated/flower

lint: .venv/.dev-installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: .venv/.bench-installed     ## speed as ratios, printed as the table of docs/benchmarks.md
	$(BIN)/python -m benchmarks

clean:
	rm -rf .venv .venv-flower demo-output .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "shufflesum needs Python 3.11 or newer; set PYTHON=")'
	$(PYTHON) -m venv .venv

.venv/.run-installed: .venv/bin/python pyproject.toml
	$(BIN)/pip install --no-compile --quiet --disable-pip-version-check -e '.[files,plots,service]'
	touch $@

.venv/.dev-installed: .venv/bin/python pyproject.toml
	$(BIN)/pip install --no-compile --quiet --disable-pip-version-check -e '.[dev]'
	touch .venv/.run-installed $@

.venv/.bench-installed: .venv/.dev-installed
	$(BIN)/pip install --no-compile --quiet --disable-pip-version-check -e '.[bench]'
	touch $@

.venv-flower/.installed: pyproject.toml
	$(PYTHON) -m venv .venv-flower
	.venv-flower/bin/pip install --no-compile --quiet --disable-pip-version-check -e '.[flower,service]' 'flwr[simulation]' pytest hypothesis scipy
	touch $@
