# make setup | demo | test | e2e | check | bench | axolotl-fields | clean
PYTHON ?= python3
BIN := .venv/bin
# The release of PyTorch that the trainer's environment starts from; axolotl's own pins follow.
TORCH ?= torch==2.13.0

.PHONY: setup demo test unit e2e check format bench axolotl-fields clean

# Two environments that must stay apart: axolotl's pins and the control side's exclude each other.
setup:
	@$(MAKE) --no-print-directory --silent -j2 .venv/.ready .venv-axolotl/.ready
	@.venv-axolotl/bin/python configs/examples/make_tiny.py

.venv/.ready: pyproject.toml constraints.txt
	@echo "setting up .venv (about a minute) …"
	@$(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

.venv-axolotl/.ready: constraints-trainer.txt
	@echo "setting up .venv-axolotl (PyTorch and axolotl, some minutes) …"
	@$(PYTHON) -m venv .venv-axolotl
	@.venv-axolotl/bin/python -m pip install --quiet --disable-pip-version-check $(TORCH)
	@.venv-axolotl/bin/python -m pip install --quiet --disable-pip-version-check \
		-c constraints-trainer.txt axolotl==0.19.0
	@touch $@

# The main job on this machine: a real training, a real loss spike, the way back, a report.
demo: setup
	@$(BIN)/axolotl-runner run configs/examples/spike.yml --cloud local --watch --cancel-on-interrupt

test: setup
	$(BIN)/python -m pytest tests

unit: .venv/.ready
	$(BIN)/python -m pytest tests/unit

# The long sweeps: processes killed at every point of a run. Stops and goes on with the rest next time.
e2e: setup
	$(BIN)/python -m pytest tests -m "e2e or chaos" --long

check: .venv/.ready
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: .venv/.ready
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# make bench PART=detector   runs one part; without PART all. Results: benchmarks/results.json
bench: setup
	$(BIN)/python -m benchmarks $(PART)

# What `axolotl-runner check` knows of axolotl's keys, from the axolotl that is installed.
axolotl-fields: .venv-axolotl/.ready
	@AXOLOTL_DO_NOT_TRACK=1 HF_HUB_OFFLINE=1 .venv-axolotl/bin/python pod/axolotl_fields.py runner/data

clean:
	rm -rf .venv .venv-axolotl .runner runs configs/examples/tiny
