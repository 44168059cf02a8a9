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

.PHONY: setup system demo test test-fast serve-verifier protos lint type imports check clean

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
	$(BIN)/python -m verifier_server serve

# Stubs of the contract; committed, and a test fails if they drift.
protos: setup
	$(BIN)/python -m grpc_tools.protoc -I protos -I $$($(BIN)/python -c 'import google.rpc, os; print(os.path.dirname(os.path.dirname(list(google.rpc.__path__)[0])))') \
		--python_out=protos/python --pyi_out=protos/python --grpc_python_out=protos/python \
		protos/populora/verifier/v1/verifier.proto

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

type: setup
	$(BIN)/mypy verifier_server trainer protos/python/populora/verifier
	MYPYPATH=verifier_server/sandbox/guest:verifier_server/judging $(BIN)/mypy --config-file containers/mypy-guest.ini \
		verifier_server/sandbox/guest/*.py

imports: setup
	$(BIN)/lint-imports

check: lint type imports test

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis
