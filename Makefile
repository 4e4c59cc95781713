# The face of hybridlab. `make` alone prints what there is.
SCENARIO ?= overlay
NAME     ?=
PROVIDER ?=
ONLY     ?=
PODS     ?=
SCENARIOS ?=
OUTPUT   ?=
SEED     ?=
ROUNDS   ?=
TEST     ?= 1
SETUP    ?= 1
export SETUP

LAB   := .venv/bin/lab
COMMA := ,
# a lab has its scenario's name; that of a file stands in the file, that of a spec has no options
OWN    = $(shell sed -nE "s/^name: *[\"']?([a-z0-9-]+).*/\1/p" '$(SCENARIO)')
LABEL  = $(or $(NAME),$(if $(filter %.yaml %.yml,$(SCENARIO)),$(OWN),$(firstword $(subst $(COMMA), ,$(SCENARIO)))))
UP    := $(if $(NAME),--name '$(NAME)') $(if $(PROVIDER),--provider $(PROVIDER)) $(if $(ONLY),--only $(ONLY)) $(if $(PODS),--pods $(PODS))

.DEFAULT_GOAL := help
.PHONY: help lab-up lab-test lab-status lab-down nightly test test-libvirt e2e e2e-topologies test-windows drill-libvirt explain-drill lint bench wheel lock setup develop

help: ## print this list
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 16
	@echo
	@echo "variables: SCENARIO=$(SCENARIO) NAME= PROVIDER= ONLY=linux|windows PODS=kubernetes|namespaces TEST=0|1 SETUP=0|1"

lab-up: setup ## bring a lab up and test it: SCENARIO=overlay, TEST=0 for up alone
	@$(LAB) up '$(SCENARIO)' $(UP)
	@if [ "$(TEST)" != 0 ]; then $(LAB) test '$(LABEL)'; fi

lab-test: setup ## run the connectivity matrix of a lab that is up
	@$(LAB) test '$(LABEL)'

lab-status: setup ## say how a lab is
	@$(LAB) status '$(LABEL)'

lab-down: setup ## take a lab down; nothing is left
	@$(LAB) down '$(LABEL)'

nightly: setup ## every scenario on the hypervisors, one night: SCENARIOS=, OUTPUT=, PROVIDER=
	@$(LAB) nightly $(SCENARIOS) $(if $(PROVIDER),--provider $(PROVIDER)) \
		$(if $(ONLY),--only $(ONLY)) $(if $(OUTPUT),--output '$(OUTPUT)')

test: develop ## the project's own tests
	@.venv/bin/python -m pytest --timeout 600 -n 2 --dist loadfile --ignore=tests/libvirt -m 'not machines'

test-libvirt: ## tests with real machines; installs and starts libvirt
	@tools/setup develop libvirt
	@.venv/bin/python -m pytest --timeout 900 tests/libvirt -m 'not drill and not cluster and not topologies'

drill-libvirt: ## the long ones: labs killed at every step, several at once, two hypervisors
	@tools/setup develop libvirt
	@.venv/bin/python -m pytest --timeout 3000 tests/libvirt -m drill

e2e: ## a real Kubernetes cluster on virtual machines; builds what it needs, which takes long once
	@tools/setup develop libvirt
	@.venv/bin/python -m pytest --timeout 7200 tests/libvirt -m cluster

e2e-topologies: ## the same for host-gateway, upstream-tor and hard-way, one after the other
	@tools/setup develop libvirt
	@.venv/bin/python -m pytest --timeout 3600 tests/libvirt -m topologies

test-windows: ## tests of Windows guests, without Windows; installs and starts libvirt
	@tools/setup develop libvirt
	@.venv/bin/python -m pytest --timeout 3000 tests/windows

lint: develop ## ruff and mypy
	@.venv/bin/ruff format --check .
	@.venv/bin/ruff check .
	@.venv/bin/mypy
	@MYPYPATH=$$(find tests -name '*.py' -not -path '*/stand_in/*' -printf '%h:' | tr : '\n' | sort -u | paste -sd:) \
		.venv/bin/mypy --config-file tests/mypy.ini --explicit-package-bases $$(find tests -name 'test_*.py')

explain-drill: develop ## every fault, and whether explain names it: SCENARIOS=, SEED=, ROUNDS=1
	@.venv/bin/python tests/netns/explain_drill.py $(SCENARIOS) \
		$(if $(SEED),--seed $(SEED)) $(if $(ROUNDS),--rounds $(ROUNDS))

bench: develop ## benchmarks: ratios within one run, printed, kept nowhere
	@.venv/bin/python benchmarks/bench.py

wheel: develop ## build the wheel into dist/
	@.venv/bin/python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist .

lock: ## write requirements*.txt anew: hashes, no index addresses (needs pip-tools)
	@for purpose in "" dev libvirt; do \
		extras=$${purpose:+--extra $$purpose}; \
		[ "$$purpose" != libvirt ] || extras="$$extras --extra windows --extra kubernetes"; \
		pip-compile --quiet --generate-hashes --allow-unsafe --strip-extras --no-header \
			--no-emit-index-url --no-emit-find-links --no-emit-trusted-host \
			--build-deps-for editable $$extras \
			--output-file requirements$${purpose:+-$$purpose}.txt pyproject.toml; \
	done

setup:
	@SCENARIO='$(SCENARIO)' tools/setup run $(filter libvirt,$(PROVIDER))

develop:
	@tools/setup develop
