# Short targets; CI calls the same ones. Everything lives in .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# cpu or cuda; remembered after the first set-up.
DEVICE ?= $(if $(wildcard $(VENV)/.done-cuda),cuda,cpu)
# Asked only if pip finds no CPU build of torch without it.
TORCH_CPU_INDEX ?= https://download.pytorch.org/whl/cpu
TORCH_CPU := torch==2.13.0+cpu
PIP := $(BIN)/python -m pip install -qq --disable-pip-version-check

.PHONY: setup system demo test test-fast test-sandbox soak benchmarks serve-verifier guest-packages protos lint type \
	imports check clean

setup: system $(VENV)/.done-$(DEVICE)

# Debian and Ubuntu packages; nothing is installed if all is there.
system:
	@containers/install-system-packages.sh $(PYTHON)

$(VENV)/.done-%: requirements/cpu.txt requirements/dev.txt requirements/data.txt requirements/cuda.txt \
		pyproject.toml protos/python/pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] < (3, 11))' || \
		{ echo "$(PYTHON) is older than 3.11: use make PYTHON=/path/to/python3.11 ..."; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(MAKE) --no-print-directory packages-$*
	$(PIP) --no-deps -r requirements/dev.txt
	$(PIP) --no-deps --ignore-requires-python -r requirements/data.txt
	$(PIP) --no-deps --no-build-isolation -e protos/python -e .
	@touch $@

packages-cpu:
	$(PIP) --no-deps '$(TORCH_CPU)' 2>/dev/null || \
		$(PIP) --no-deps --extra-index-url $(TORCH_CPU_INDEX) '$(TORCH_CPU)'
	$(PIP) --no-deps -r requirements/cpu.txt

packages-cuda:
	$(PIP) -r requirements/cuda.txt

demo: setup
	@$(BIN)/python -m trainer.demo

test: setup
	$(BIN)/python -m pytest

# Without jails and without vLLM.
test-fast: setup
	$(BIN)/python -m pytest -m "not nsjail and not vllm"

serve-verifier: setup
	$(BIN)/python -m verifier_server serve $(if $(PACKAGES),--packages $(PACKAGES))

# Modules for programs in jails besides the standard library: make serve-verifier PACKAGES=.guest-packages
GUEST_PYTHON ?= /usr/bin/python3
guest-packages: setup
	rm -rf .guest-packages
	$(PIP) --no-deps --only-binary :all: --target .guest-packages -r requirements/guest.txt \
		--python-version $$($(GUEST_PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])')

# The attack suite and everything else that starts jails, under a memory limit of its own.
test-sandbox: setup
	$(BIN)/python -m pytest tests/sandbox -m nsjail -o console_output_style=count
	@$(BIN)/python -c 'from verifier_server.selftest.suite import ATTACKS; print(f"{len(ATTACKS)} attacks contained")'

# Ten minutes: 10,000 runs, 5 % hostile, ten times as many calls as fit.
soak: setup
	$(BIN)/python -m benchmarks.soak

# Needs data sets: POPULORA_DATA=folder make benchmarks
benchmarks: setup
	$(BIN)/python -m benchmarks.evalplus
	$(BIN)/python -m benchmarks.cruxeval
	$(BIN)/python -m benchmarks.selfplay_tasks

# Stubs of the contract; committed, and a test fails if they drift.
protos: setup
	$(BIN)/python -m grpc_tools.protoc -I protos -I $$($(BIN)/python -c 'import google.rpc, os; print(os.path.dirname(os.path.dirname(list(google.rpc.__path__)[0])))') \
		--python_out=protos/python --pyi_out=protos/python --grpc_python_out=protos/python \
		protos/populora/verifier/v1/verifier.proto

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

type: setup
	$(BIN)/mypy verifier_server trainer benchmarks protos/python/populora/verifier
	MYPYPATH=verifier_server/sandbox/guest:verifier_server/judging $(BIN)/mypy --config-file containers/mypy-guest.ini \
		verifier_server/sandbox/guest/*.py

imports: setup
	$(BIN)/lint-imports

check: lint type imports test

clean:
	rm -rf $(VENV) .guest-packages .mypy_cache .pytest_cache .ruff_cache .hypothesis
