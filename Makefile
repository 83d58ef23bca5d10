# KVGate: `make help` lists what there is.
.DEFAULT_GOAL := help
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS += --no-print-directory

PYTHON ?= python3
PY := .venv/bin/python
SITE ?=
SCENARIO ?=
RUNS ?=
RUN ?=
NONCE ?=
FROM ?=
OUT ?=
ZONE ?=
WAIVERS ?=
GATE ?= g3
LANG_ ?= zh,en
ROUNDS ?= 10
ARGS ?=

# The rehearsal site brings its own engine; a lab site uses the engine that the lab has.
LEVEL := $(if $(filter-out rehearsal,$(SITE)),core,core engine)
# To the shell they go through its environment, so that a path may hold blanks, quotes and dollars.
GIVEN := SITE SCENARIO RUNS RUN NONCE FROM OUT ZONE WAIVERS GATE LANG_ ROUNDS
$(foreach name,$(GIVEN),$(eval export GIVEN_$(name) = $$(value $(name))))
OPTIONS = $(if $(SITE),--site "$$GIVEN_SITE") $(if $(SCENARIO),--scenario "$$GIVEN_SCENARIO") $(if $(RUNS),--runs "$$GIVEN_RUNS") $(if $(NONCE),--nonce "$$GIVEN_NONCE") --langs "$$GIVEN_LANG_"
NEED_RUN = @[ -n "$$GIVEN_RUN" ] || { echo "kvgate: name the run: make $@ RUN=runs/..." >&2; exit 4; }

.PHONY: help core engine dev selfcheck bench bench-judging gate-g1 gate-g3 probe draft-site smoke doctor plan verify sign ledger rejudge explain report history samples test fuzz check test-engine test-engine-all

##@ Gates
gate-g1: ## arrival check: is it what was ordered, healthy, wired right, fast raw (SITE=, FROM=bundle.tar, RUNS=, ARGS=)
	@$(PYTHON) install.py core
	@$(PY) -m pytest gates/test_g1.py $(OPTIONS) $(if $(FROM),--from "$$GIVEN_FROM") $(ARGS)

probe: ## collect what this host's tools tell into OUT=bundle.tar, for make gate-g1 FROM= elsewhere (ARGS='--path /mnt/tier')
	@[ -n "$$GIVEN_OUT" ] || { echo "kvgate: name the bundle: make $@ OUT=bundle.tar" >&2; exit 4; }
	@$(PYTHON) workloads/probes.py "$$GIVEN_OUT" $(ARGS)

draft-site: ## a site file with its [bom] from a bundle, to be reviewed by hand (FROM=bundle.tar)
	@[ -n "$$GIVEN_FROM" ] || { echo "kvgate: name the bundle: make $@ FROM=bundle.tar" >&2; exit 4; }
	@$(PYTHON) install.py core
	@$(PY) -m gates draft-site "$$GIVEN_FROM"

gate-g3: ## main gate: TTFT and throughput (SITE=, SCENARIO=, NONCE=, RUNS=, ARGS=; RUN= goes on with an interrupted run)
	@$(PYTHON) install.py $(LEVEL)
	@$(PY) -m pytest gates/test_g3.py $(OPTIONS) $(if $(RUN),--resume "$$GIVEN_RUN") $(ARGS)

plan: ## what a gate run will cost and can decide; starts nothing (GATE=g3, SITE=, SCENARIO=)
	@[ "$$GIVEN_GATE" = g3 ] || { echo "kvgate: no plan for gate '$$GIVEN_GATE' here: g3" >&2; exit 4; }
	@$(PYTHON) install.py core
	@$(PY) -m gates plan $(if $(SITE),--site "$$GIVEN_SITE") $(if $(SCENARIO),--scenario "$$GIVEN_SCENARIO")

smoke: ## one wave per arm and step, every validity check, no verdict (GATE=g3)
	@[ -f "gates/test_$$GIVEN_GATE.py" ] || { echo "kvgate: no gate '$$GIVEN_GATE' here: $$(cd gates && ls test_*.py | sed 's/test_\(.*\).py/\1/' | tr '\n' ' ')" >&2; exit 4; }
	@$(PYTHON) install.py $(LEVEL)
	@$(PY) -m pytest "gates/test_$$GIVEN_GATE.py" --smoke $(OPTIONS) $(ARGS)

selfcheck: ## the gate itself under test: live controls of known truth on the real engine (ARGS=, most of an hour)
	@$(PYTHON) install.py core engine
	@$(PY) -m controls $(ARGS)

doctor: ## what this machine has and lacks for a gate run (SITE=, SCENARIO=)
	@$(PYTHON) install.py core
	@$(PY) -m scenarios.preflight "$${GIVEN_SITE:-rehearsal}" "$${GIVEN_SCENARIO:-rehearsal}"

##@ A recorded run (no hardware needed)
verify: ## name every file of RUN= that was changed, lost or added since it was sealed, and who signed it
	$(NEED_RUN)
	@$(PYTHON) install.py core
	@$(PY) -m gates verify "$$GIVEN_RUN"

sign: ## sign RUN= as a witness, after looking at it (ARGS='--key KEY'; docs/evidence.md)
	$(NEED_RUN)
	@$(PYTHON) install.py core
	@$(PY) -m gates sign "$$GIVEN_RUN" $(ARGS)

ledger: ## every attempt in RUNS=, and whether the chain of the ledger holds
	@$(PYTHON) install.py core
	@$(PY) -m gates ledger "$${GIVEN_RUNS:-runs}"

rejudge: ## judge the sealed evidence of RUN= again; writes the same verdict.json, byte for byte
	$(NEED_RUN)
	@$(PYTHON) install.py core
	@$(PY) -m gates rejudge "$$GIVEN_RUN"

explain: ## say in words why RUN= got its verdict
	$(NEED_RUN)
	@$(PYTHON) install.py core
	@$(PY) -m gates explain "$$GIVEN_RUN"

report: ## HTML and PDF of RUN=, or one programme report of RUNS="run run ..." (LANG_=, ZONE=, WAIVERS=, OUT=)
	@[ -n "$$GIVEN_RUN$$GIVEN_RUNS" ] || { echo "kvgate: name the run: make $@ RUN=runs/... or RUNS=\"...\"" >&2; exit 4; }
	@$(PYTHON) install.py core
	@$(PY) -m reports $(if $(RUN),"$$GIVEN_RUN" $(if $(WAIVERS),--waivers "$$GIVEN_WAIVERS"),--programme $$GIVEN_RUNS $(if $(OUT),--out "$$GIVEN_OUT")) --lang "$$GIVEN_LANG_" $(if $(ZONE),--zone "$$GIVEN_ZONE")

history: ## a page over all runs in RUNS= (OUT=, LANG_=)
	@$(PYTHON) install.py core
	@$(PY) -m reports --history "$${GIVEN_RUNS:-runs}" $(if $(OUT),--out "$$GIVEN_OUT") --lang "$$GIVEN_LANG_"

samples: ## first pages of sample reports into docs/samples (no engine)
	@$(PYTHON) install.py core
	@$(PY) docs/samples

##@ Loads against any OpenAI-compatible server: python -m workloads --help, docs/load.md
bench: ## our client and its peers against a server that logs the truth; writes docs/bench.md (ARGS=, minutes)
	@$(PYTHON) install.py core
	@$(PY) -m bench --out docs/bench.md $(ARGS)

bench-judging: ## time and memory of judging five million requests, made up (8 minutes, 5 GB; ARGS="--requests N")
	@$(PYTHON) install.py core dev
	@$(PY) -m bench.judging $(ARGS)

##@ The project itself
test: ## the tests that need no engine
	@$(PYTHON) install.py core dev
	@$(PY) -m pytest tests -m 'not engine and not engine_long' $(ARGS)

fuzz: ## the property tests with examples not tried before, ROUNDS= times over (10; a minute or two each)
	@$(PYTHON) install.py core dev
	@for round in $$(seq "$$GIVEN_ROUNDS"); do \
	  $(PY) -m pytest tests -m 'hypothesis and not engine and not engine_long' --hypothesis-profile=new -q $(ARGS) || exit 1; \
	done

check: ## lint, types, import contracts, then the tests
	@$(PYTHON) install.py core dev
	@.venv/bin/ruff format --check .
	@.venv/bin/ruff check .
	@.venv/bin/mypy
	@.venv/bin/lint-imports
	@$(MAKE) test

test-engine: ## tests on the real vLLM and LMCache that CI runs (minutes)
	@$(PYTHON) install.py core dev engine
	@$(PY) -m pytest tests -m engine $(ARGS)

test-engine-all: ## all tests on the real engine, the long controls too (most of an hour)
	@$(PYTHON) install.py core dev engine
	@$(PY) -m pytest tests -m 'engine or engine_long' $(ARGS)

engine: ## install the CPU engine of the rehearsal into .venv
	@$(PYTHON) install.py core engine

help: ## this list
	@awk 'BEGIN {FS = ":.*## "} /^##@/ {printf "\n%s\n", substr($$0, 5)} /^[a-z0-9-]+:.*## / {printf "  %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
