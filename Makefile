# Two commands for a newcomer: `make demo` and `make test`. The first of them sets .venv up, which takes a minute.
PYTHON ?= python3
BIN := .venv/bin
# The stamp is written last, so an interrupted set-up starts over.
READY := .venv/.ready
# Two tests at a time, file by file, so that what a file sets up once is set up once.
PYTEST := $(BIN)/python -m pytest --numprocesses 2 --dist loadfile

.PHONY: demo test slow lint types format wheel xla browser pins clean

demo: $(READY)
	@examples/demo.sh

test: $(READY)
	$(PYTEST) -m "not slow"

slow: $(READY)
	$(PYTEST) -m slow

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/mypy

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# What users get: the wheel, in place of the editable install.
wheel: $(READY)
	rm -rf dist
	$(BIN)/python -m build --wheel --no-isolation --outdir dist . > /dev/null
	$(BIN)/python -m pip install --quiet --no-deps --force-reinstall dist/*.whl

# The extra `xla` (2 GB): XLA's GPU compiler and cuDNN, for predictions without a GPU.
xla: .venv/.xla
.venv/.xla: $(READY) requirements/xla.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/xla.txt
	@touch $@

# Chromium for tests/browser, which are skipped without it. On Debian and Ubuntu, as root.
browser:
	@command -v chromium > /dev/null || { \
	  export DEBIAN_FRONTEND=noninteractive; \
	  apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium > /dev/null; }

# New pins: versions and hashes, no index addresses. Needs uv.
pins:
	uv pip compile pyproject.toml --extra cpu --extra gpu --group dev --universal --python-version 3.10 \
	  --generate-hashes --no-emit-index-url --no-annotate --no-header --upgrade --quiet -o requirements/dev.txt
	uv pip compile pyproject.toml --extra xla -c requirements/dev.txt --universal --python-version 3.11 \
	  --generate-hashes --no-emit-index-url --no-annotate --no-header --upgrade --quiet -o requirements/xla.txt

clean:
	rm -rf .venv dist .mypy_cache .pytest_cache .ruff_cache .hypothesis

$(READY): requirements/dev.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	  { echo "memfit needs Python 3.10 or later; name one with: make PYTHON=/path/to/python"; exit 3; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@
