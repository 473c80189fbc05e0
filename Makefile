# make demo          train ANEDL on real handwritten digits and write an illustrated report (minutes, no GPU)
# make example       sort a real pile of images with `anedl fit` and compare with the truth (minutes, no GPU)
# make test          lint, types and tests (under 10 minutes on two cores)
# make test-long     the tests that take longer
# make test-browser  the pages in a real browser; installs Debian's chromium where it may
# make clean         remove the virtual environment and every cache
# Only Python 3.11 or newer and make are needed; the first call creates .venv.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
# One thread a test process: two processes on two cores otherwise fight over them.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal

# As tests/conftest.py looks for it.
HAS_BROWSER := command -v chromium || command -v chromium-browser || command -v google-chrome
APT := DEBIAN_FRONTEND=noninteractive timeout 600 apt-get -qq -o Acquire::Retries=1

.PHONY: demo example test lint test-long test-browser browser install clean

demo: $(INSTALLED)
	$(BIN)/anedl demo

example: $(INSTALLED)
	$(BIN)/anedl example

test: lint
	$(PYTEST) -m "not long and not browser"

# No cache of ruff: a module that is gone changes what it says of files that did not change.
lint: $(INSTALLED)
	$(BIN)/ruff check --no-cache .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test-long: $(INSTALLED)
	$(PYTEST) -m long

test-browser: $(INSTALLED) browser
	$(PYTEST) -m "browser and not long" -rs

# Without a browser its tests are skipped, which is said and is no failure.
browser:
	@{ $(HAS_BROWSER); } >/dev/null || { \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    echo "installing chromium"; \
	    $(APT) update && $(APT) install -y --no-install-recommends chromium >/dev/null; \
	  fi; \
	  { $(HAS_BROWSER); } >/dev/null || \
	    echo "no browser, so its tests are skipped: install Chromium (on Debian: sudo apt-get install chromium) and call this again"; \
	}

install: $(INSTALLED)

# torch goes first, alone and at its exact pin, so that no other package's looser wish picks the build.
$(INSTALLED): pyproject.toml constraints.txt
	@command -v $(PYTHON) >/dev/null 2>&1 || { echo "anedl needs Python 3.11 or newer, and there is no '$(PYTHON)' on the PATH: install it or call make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "anedl needs Python 3.11 or newer, but %s is %d.%d: call make PYTHON=/path/to/python3.11" % (sys.executable, sys.version_info[0], sys.version_info[1]))'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing into $(VENV) (a few minutes the first time)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check "$$(grep '^torch==' constraints.txt)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt "hatchling>=1.27" editables
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation -c constraints.txt -e ".[dev]"
	@touch $@

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
