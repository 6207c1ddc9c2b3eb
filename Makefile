# Two commands need nothing but Python 3.11 and this checkout: make demo, make test.
NEW_ENOUGH := import sys, venv; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(shell for python in python3 python3.11 python3.12 python3.13 python3.14; do \
  $$python -c '$(NEW_ENOUGH)' 2>/dev/null && echo $$python && break; done)
VENV   ?= .venv
BIN    := $(VENV)/bin
MESSAGES ?= 10000000
EXTRAS := dev,postgres,bench,mysql,docker,duckdb,redis,flatmachines,gpu,kubernetes,otel,s3,plot,fast,ray,runpod,snowflake,ssh,web

.PHONY: help demo test test-engines test-snowflake check lint types imports format soak sanitize bench screenshots clean

help: ## what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(BIN)/.ready: pyproject.toml constraints.txt src/drumbeat/bench/driver/core.c
	@echo "drumbeat: making its own environment in $(VENV)"
	@test -n "$(PYTHON)" && $(PYTHON) -c '$(NEW_ENOUGH)' \
	  || { echo "drumbeat needs Python 3.11 or newer with venv; found none. Try: make PYTHON=/path/to/python3.11"; exit 1; }
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install --no-compile --quiet --disable-pip-version-check -c constraints.txt -e ".[$(EXTRAS)]"
	@touch $@

demo: $(BIN)/.ready ## how many connections does a database take? Found in a minute by two workers, on SQLite
	@$(BIN)/drumbeat demo

test: $(BIN)/.ready ## the tests, on real servers it starts itself; make soak runs the longest too
	@echo "drumbeat: running the tests (PostgreSQL comes from a wheel and is started on a free loopback port)"
	@$(BIN)/python -m pytest -n 3 --dist loadscope --no-loadscope-reorder -q -m "not soak"

soak: $(BIN)/.ready ## every test, the longest too, with all the rounds of chance there are: in random order, many more seeds and examples
	@DRUMBEAT_THOROUGH=1 DRUMBEAT_ORDER_SEED=$${DRUMBEAT_ORDER_SEED:-$$(date +%s)} $(BIN)/python -m pytest -n 4 --dist loadscope --no-loadscope-reorder -q

test-engines: $(BIN)/.ready ## the spawners on real engines, which it installs and starts itself: OpenSSH, Docker, Slurm, Ray
	@DRUMBEAT_TEST_ENGINES=1 $(BIN)/python -m pytest -q tests/spawn/ssh tests/engines tests/e2e/test_engines_ssh.py

SNOWFLAKE := tests/bench/targets/test_snowflake.py tests/store/test_snowflake.py
SNOWFLAKE_EMULATED := tests/store/test_snowflake_own.py tests/store/test_snowflake_killed.py tests/e2e/test_bench_snowflake.py tests/e2e/test_bench_snowflake_store.py tests/spawn/spcs

test-snowflake: $(BIN)/.ready ## the Snowflake suites, on the account in DRUMBEAT_TEST_SNOWFLAKE_URL or on an emulator; says what an account costs
	@$(BIN)/python tests/snowflake_account.py
	@DRUMBEAT_TEST_SNOWFLAKE=1 $(BIN)/python -m pytest -q $(SNOWFLAKE) $(if $(DRUMBEAT_TEST_SNOWFLAKE_URL),,$(SNOWFLAKE_EMULATED))

sanitize: $(BIN)/.ready ## the compiled driver core under AddressSanitizer: its tests, and ten million messages of chance
	@$(BIN)/python tests/bench/driver/sanitize.py --messages $(MESSAGES)

check: lint types imports test ## what must be green at every commit

lint: $(BIN)/.ready ## ruff: rules and layout
	@$(BIN)/ruff format --check . && $(BIN)/ruff check .

types: $(BIN)/.ready ## mypy --strict
	@$(BIN)/mypy

imports: $(BIN)/.ready ## which package imports which
	@$(BIN)/lint-imports --no-cache

format: $(BIN)/.ready ## let ruff lay out the code
	@$(BIN)/ruff format . && $(BIN)/ruff check --fix .

bench: $(BIN)/.ready ## every benchmark, quickly
	@for script in benchmarks/*.py; do $(BIN)/python $$script --quick || exit 1; done

screenshots: $(BIN)/.ready ## pictures for docs/dashboard.md, of a real dashboard in a real Chromium
	@$(BIN)/python tests/docs/screenshots.py

clean: ## remove the environment and everything made
	@rm -rf $(VENV) .drumbeat .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
