# Every target builds what it needs in .venv: only Python 3.11+, make and git must be there.
PYTHON ?= python3
BIN := .venv/bin
# Hundreds of processes import the same libraries: their bytecode is kept, in .venv whatever the environment says.
unexport PYTHONDONTWRITEBYTECODE
export PYTHONPYCACHEPREFIX := $(CURDIR)/.venv/bytecode
IN_PROCESS := not slow and not servers and not cluster and not processes
FAST := $(IN_PROCESS) and not long

.PHONY: demo demo-service demo-web setup-postgres setup-browser setup-chromium test test-fast test-slow test-mutants test-flower coverage lint count bench reproduce reproduce-quick docs release clean

demo: .venv/.run-installed        ## aggregate a synthetic crowd privately and draw the result
	$(BIN)/shufflesum demo -o demo-output

demo-service: .venv/.dev-installed  ## client, shuffler and analyzer as separate programs on this machine
	$(BIN)/python examples/service.py

demo-web: .venv/.run-installed    ## a survey in the browser, a crowd of simulated visitors, and what the analysts see
	$(BIN)/python examples/survey/run.py

setup-postgres:                   ## the database that the service tests run against, where it is missing
	ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || command -v initdb >/dev/null || \
	  { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq postgresql; }

setup-browser: setup-chromium clients/browser/node_modules/.installed  ## what the browser client and the pages are tested with, where it is missing

setup-chromium:
	command -v chromium >/dev/null || { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium; }

clients/browser/node_modules/.installed: clients/browser/package-lock.json
	command -v npm >/dev/null || { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq nodejs npm; }
	cd clients/browser && npm ci --ignore-scripts --no-fund --no-audit
	touch $@

# Types are checked beside the tests, which wait for servers now and then; what fails first is seen first.
test test-fast test-slow test-mutants coverage: export NUMBA_CACHE_DIR := $(CURDIR)/.venv/kernels

test: .venv/.dev-installed        ## lint, strict types, layering, tests
	$(MAKE) --no-print-directory lint & linting=$$!; \
	$(BIN)/python -m tests.compile_kernels && $(BIN)/pytest -n 3 --dist worksteal && { wait $$linting || { echo "lint failed, see above"; exit 1; }; }

test-fast: .venv/.dev-installed   ## the same without servers, clusters, processes and long statistics
	$(MAKE) --no-print-directory lint & linting=$$!; \
	$(BIN)/python -m tests.compile_kernels && $(BIN)/pytest -n 2 --dist worksteal -m "$(FAST)" && { wait $$linting || { echo "lint failed, see above"; exit 1; }; }

coverage: .venv/.dev-installed    ## which lines the tests in one process reach (not those inside compiled kernels)
	$(BIN)/pytest -n 2 -m "$(IN_PROCESS)" --cov --cov-report=term-missing:skip-covered

test-slow: .venv/.docs-installed docs  ## the long statistical extras, the site and the packages
	$(BIN)/pytest -n 2 -m slow

test-mutants: .venv/.dev-installed  ## a sample of small wrong changes that tests must notice: up to an hour
	$(BIN)/python -m tests.mutation

test-flower: .venv-flower/.installed  ## the adapter for Flower, whose pins are tight: in an environment of its own
	.venv-flower/bin/pytest tests/federated/flower

lint: .venv/.dev-installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: .venv/.docs-installed       ## the site, in docs/_build/html: tutorials are executed, warnings are errors
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/sphinx-build -W --keep-going -q -b html docs docs/_build/html

release: .venv/.docs-installed docs  ## everything but the upload, in dist/: wheel, sdist and npm package, checked and tried
	rm -rf dist && mkdir dist
	$(BIN)/python -m build --outdir dist .
	$(BIN)/twine check --strict dist/*
	cd clients/browser && npm pack --pack-destination ../../dist
	$(BIN)/pytest -m slow tests/site
	@echo "ready in dist/: twine upload dist/*.whl dist/*.tar.gz; npm publish dist/*.tgz; docs/_build/html to where the site is"

reproduce: .venv/.run-installed   ## the paper's figures and the federated comparison, in reproduction/; DATA=PATH and MNIST=DIR name real data
	$(BIN)/python -m experiments paper $(if $(DATA),--data $(DATA)) -o reproduction/paper
	$(BIN)/python -m experiments federated $(if $(MNIST),--mnist $(MNIST)) -o reproduction/federated

reproduce-quick: .venv/.run-installed  ## some of their values, in reproduction-quick/: under a minute
	$(BIN)/python -m experiments paper --quick $(if $(DATA),--data $(DATA)) -o reproduction-quick/paper
	$(BIN)/python -m experiments federated --quick $(if $(MNIST),--mnist $(MNIST)) -o reproduction-quick/federated

count: .venv/bin/python           ## how large the code is: modules, lines, imports, and who asks for a concrete domain
	$(BIN)/python tools/count.py

bench: .venv/.bench-installed     ## speed as ratios, printed as the table of docs/benchmarks.md
	$(BIN)/python -m benchmarks

clean:
	rm -rf .venv .venv-flower clients/browser/node_modules demo-output reproduction-quick docs/_build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
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

.venv/.docs-installed: .venv/.dev-installed
	$(BIN)/pip install --no-compile --quiet --disable-pip-version-check -e '.[docs]'
	touch $@

.venv-flower/.installed: pyproject.toml
	$(PYTHON) -m venv .venv-flower
	.venv-flower/bin/pip install --no-compile --quiet --disable-pip-version-check -e '.[flower,service]' 'flwr[simulation]' pytest hypothesis scipy
	touch $@
