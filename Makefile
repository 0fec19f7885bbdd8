# Every target makes its own .venv and builds what changed; `make` alone lists the targets.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMPS := .stamps
ARGS ?=
# AGAIN=yes: tests that do not pass beside others are run once more, alone, and named; CI does that.
AGAIN ?=
ONCE_MORE = { echo "make: what did not pass, once more and alone:"; $(BIN)/python -m pytest --again=$(STAMPS)/results.json --results=$(STAMPS)/results.json $(ARGS); }
# Processes that tests run in; much of their time is waiting. WORKERS=0: in one, with output as it comes.
WORKERS ?= $(shell n=$$((2 * $$(nproc 2>/dev/null || echo 2))); echo $$((n < 12 ? n : 12)))
# Seconds that the demo runs; empty means until Ctrl-C. Always written $(SECONDS): the shell has a variable of that name.
SECONDS ?=

COMPILED := $(shell find src bench -name '*.pyx' -o -name '*.pxd')
# The Spark tests need Java 17; everything else runs without Java.
SPARK_TESTS := $(wildcard tests/spark)
JAVA_MAJOR := $(shell java -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p;T;q')
JAVA_17 := $(shell [ "$(JAVA_MAJOR)" -ge 17 ] 2>/dev/null && echo yes)
SPARK := $(if $(and $(SPARK_TESTS),$(JAVA_17)),$(STAMPS)/spark)

# $(call check,PYTHON EXPRESSION,REMEDY): one line that says what is missing and how to get it.
check = $(PYTHON) -c 'import os, shlex, shutil, sys, sysconfig; sys.exit(0 if ($(1)) else 1)' 2>/dev/null \
	|| { echo "make: $(2)" >&2; exit 1; }
# $(call install,WHAT): pip with one dot a package; the whole output stays in a log and is shown if it fails.
install = $(BIN)/python -m pip install --progress-bar off $(1) 2>&1 | tee $(STAMPS)/install.txt \
	| while read -r word _; do case "$$word" in Collecting|Building|Installing) printf . ;; esac; done \
	&& echo || { echo; tail -n 25 $(STAMPS)/install.txt >&2; exit 1; }

.PHONY: help
help: ## show this list
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 16

# A demo that is long enough has an act on Spark.
LONG := $(shell [ "$(SECONDS)" -ge 90 ] 2>/dev/null && echo yes)

.PHONY: demo
demo: $(STAMPS)/build $(if $(LONG),$(SPARK)) ## two clouds with brokers, modes, a flood, a condensation; SECONDS=20 ends by itself, 90 adds a pipeline
	@$(BIN)/chappe demo $(if $(SECONDS),--seconds $(SECONDS)) $(ARGS)

.PHONY: test
test: $(STAMPS)/build $(STAMPS)/dev $(SPARK) ## the whole test suite; ARGS="-k wire" selects
	@$(if $(JAVA_17),,echo "make: no Java 17 or newer: the Spark extra is left out (sudo apt install openjdk-17-jre-headless)")
	@rm -f $(STAMPS)/results.json
	@$(BIN)/python -m pytest -n $(WORKERS) --dist load --max-worker-restart 0 --results=$(STAMPS)/results.json $(ARGS) $(if $(AGAIN),|| $(ONCE_MORE))  # with "=": pytest takes a file that exists for a test path

.PHONY: lint
lint: $(STAMPS)/build $(STAMPS)/dev $(SPARK) ## ruff, mypy --strict, import-linter, cython-lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict src bench
	$(BIN)/lint-imports
	PATH="$(BIN):$$PATH" cython-lint src bench  # it runs pycodestyle by name

.PHONY: bench
bench: $(STAMPS)/build $(STAMPS)/dev ## every benchmark beside its targets; ARGS=--quick for a look
	@$(BIN)/chappe bench all $(ARGS)

.PHONY: spec
spec: $(STAMPS)/build $(STAMPS)/dev ## the rows of the specification, their tests and the last results
	@$(BIN)/python -m tests.spec $(ARGS)

.PHONY: structure
structure: $(STAMPS)/dev ## sizes of packages, depth of inheritance, cycles of imports; ARGS=--json
	@$(BIN)/python tools/structure.py $(ARGS)

.PHONY: docs
docs: $(STAMPS)/dev ## the documentation, in site/
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict  # not --quiet: that hides warnings from --strict

.PHONY: peers
peers: ## apt: the servers of benchmarks and interop tests (for CI; needs root)
	@command -v apt-get >/dev/null || { echo "make: peers needs apt; install nats-server, mosquitto, redis-server and postgresql by hand" >&2; exit 1; }
	@set -x; root=$$([ "$$(id -u)" = 0 ] || echo sudo); \
	$$root apt-get update -qq; \
	$$root env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends \
		nats-server mosquitto redis-server postgresql clang iproute2 faketime strace systemd >/dev/null; \
	version=$$(clang -dumpversion | cut -d. -f1); \
	$$root env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends libclang-rt-$$version-dev >/dev/null

.PHONY: build
build: $(STAMPS)/build ## compile the Cython modules in place

.PHONY: clean
clean: ## remove what make made
	rm -rf $(VENV) $(STAMPS) build dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache src/*.egg-info
	find src bench -name '*.so' -delete
	find src bench tests -name __pycache__ -prune -exec rm -rf {} +
	find src bench -name '*.pyx' | sed 's/pyx$$/c/' | xargs -r rm -f

.PHONY: checks
checks:
	@$(call check,sys.version_info >= (3 , 11),Chappe needs Python 3.11 or newer: sudo apt install python3 python3-venv python3-dev (or: make PYTHON=python3.12 ...))
	@$(call check,__import__("venv") and __import__("ensurepip"),the venv module of Python is missing: sudo apt install python3-venv)
	@$(call check,shutil.which(shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")[0]),there is no C compiler: sudo apt install gcc)
	@$(call check,os.path.exists(os.path.join(sysconfig.get_path("include") , "Python.h")),Python.h is missing: sudo apt install python3-dev)

$(BIN)/python: | checks
	@echo "make: creating $(VENV)"
	@$(PYTHON) -m venv $(VENV)

# What running needs. No module's name contains "/": the editable install compiles nothing, the next rule compiles in
# place. The path file makes `bench`, which is not installed, a package of this checkout.
$(STAMPS)/venv: pyproject.toml | checks $(BIN)/python
	@mkdir -p $(STAMPS)
	@printf 'make: installing what Chappe needs into $(VENV), a minute the first time '
	@$(call install,'setuptools>=77' 'cython>=3.1')
	@export CHAPPE_EXT=/; $(call install,--no-build-isolation -e .)
	@$(BIN)/python -c 'import os, sysconfig; print(os.getcwd(), file=open(sysconfig.get_path("purelib") + "/chappe-checkout.pth", "w"))'
	@touch $@

$(STAMPS)/build: $(STAMPS)/venv setup.py $(COMPILED) | checks
	@echo "make: compiling what changed, a few minutes the first time"
	@$(BIN)/python setup.py -q build_ext --inplace --parallel $$(nproc) >$(STAMPS)/build.txt 2>&1 \
		|| { grep -vE '^(In |  *[|0-9]|.*(warning|note):)' $(STAMPS)/build.txt | tail -n 40 >&2; exit 1; }
	@touch $@

# What tests, linters, benches and the documentation need.
$(STAMPS)/dev: pyproject.toml $(STAMPS)/venv
	@printf 'make: installing what tests need, a few minutes the first time '
	@export CHAPPE_EXT=/; $(call install,--no-build-isolation -e '.[dev]')
	@touch $@

$(STAMPS)/spark: pyproject.toml $(STAMPS)/venv
	@printf 'make: installing the Spark extra '
	@export CHAPPE_EXT=/; $(call install,--no-build-isolation -e '.[spark]')
	@touch $@
