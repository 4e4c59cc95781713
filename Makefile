# Shortcuts for hybridlab. `make` alone lists those that people use, `make help-all` all.
SCENARIO ?= overlay
NAME     ?=
PROVIDER ?=
ONLY     ?=
PODS     ?=
SCENARIOS ?=
OUTPUT   ?=
FAULTS   ?=
SEED     ?=
ROUNDS   ?=
RANDOM   ?=
OLD      ?= HEAD
TEST     ?= 1
SETUP    ?= 1

# Values reach the recipes only through the environment, unchanged: neither make nor the shell
# evaluates them. So a recipe has "$$NAME", never the value itself. Other variables of this file
# cannot be set from the command line.
override VARIABLES := SCENARIO NAME PROVIDER ONLY PODS SCENARIOS OUTPUT FAULTS SEED ROUNDS RANDOM OLD TEST SETUP
override variable :=
# make would expand other variables from the command line for every recipe.
override OTHERS := $(foreach variable,$(.VARIABLES),$(if $(filter command,$(origin $(variable))),$(variable)))
$(foreach variable,$(VARIABLES) $(OTHERS),$(eval override $(variable) := $$(value $(variable))))
export $(VARIABLES)
$(if $(filter scenario name provider only pods test setup,$(OTHERS)),$(error variables are in capitals: SCENARIO=overlay, not scenario=overlay))

override LAB := .venv/bin/lab
# a lab is named by its name, or by the scenario that it was made from
override LABEL := "$${NAME:-$$SCENARIO}"

# If it is set, each `lab` compiles everything that it imports, and each worker of pytest all tests:
# 20 s of processor time before the first one, instead of 7.
export override PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help help-all reference docs man pictures lab-up lab-test lab-status lab-down nightly nightly-setup test test-machines test-windows-quick test-core-alone test-slow test-all test-nspawn test-libvirt e2e test-cluster e2e-libvirt conformance conformance-windows test-nspawn-host test-windows test-wine test-wine-topologies test-attached test-powershell drill-libvirt drill-nspawn explain-drill lint mutate differential record bench size audit test-lowest wheel release lock setup develop

override OFTEN := lab-up lab-test lab-status lab-down nightly develop test lint reference wheel

help: ## print the targets that people use
	@for target in $(OFTEN); do grep -hE "^$$target:.*## " Makefile; done | sed -E 's/:[^#]*## /\t/' | expand -t 20
	@echo
	@echo "all targets: make help-all"
	@echo "variables: SCENARIO=$$SCENARIO NAME= PROVIDER= ONLY=linux|windows PODS=kubernetes|namespaces TEST=0|1 SETUP=0|1"

help-all: ## print all targets
	@grep -hE '^[a-z0-9-]+:.*## ' Makefile | sed -E 's/:[^#]*## /\t/' | expand -t 20

lab-up: setup ## bring a lab up and test it: SCENARIO=overlay, TEST=0 to skip the test
	@$(LAB) up $${NAME:+--name "$$NAME"} $${PROVIDER:+--provider "$$PROVIDER"} \
		$${ONLY:+--only "$$ONLY"} $${PODS:+--pods "$$PODS"} -- "$$SCENARIO"
	@[ "$$TEST" = 0 ] || $(LAB) test -- $(LABEL)

lab-test: setup ## run the connectivity matrix of a running lab
	@$(LAB) test -- $(LABEL)

lab-status: setup ## show the state of a lab
	@$(LAB) status -- $(LABEL)

lab-down: setup ## take a lab down; only the reports of its runs stay
	@$(LAB) down -- $(LABEL)

nightly nightly-setup: override export SCENARIO =
nightly nightly-setup: export NIGHT = $(or $(SCENARIOS),$(wildcard scenarios/*.yaml))

nightly-setup: setup ## install only what a night needs, by its scenarios and its provider

nightly: setup ## every scenario on the hypervisors, one night: SCENARIOS=, OUTPUT=, PROVIDER=
	@set -f; $(LAB) nightly $${PROVIDER:+--provider "$$PROVIDER"} \
		$${ONLY:+--only "$$ONLY"} $${OUTPUT:+--output "$$OUTPUT"} -- $$SCENARIOS

override PYTEST = .venv/bin/python -m pytest --timeout 600 -n 6 --dist loadfile --no-loadscope-reorder
override CORE = tests/e2e tests/netns tests/unit tests/differential
override MACHINES = tests/machines tests/api tests/bundle tests/node --ignore tests/machines/real

test: develop ## the core's own tests, in minutes; the rooms have targets of their own
	@$(PYTEST) $(CORE) -m 'not machines and not slow'

test-machines: develop ## quick tests of lab/machines/, without a machine
	@$(PYTEST) $(MACHINES) -m 'not machines and not slow'

test-windows-quick: develop ## quick tests of lab/windows/, without Windows and without a machine
	@$(PYTEST) tests/windows -m 'not machines and not slow'

test-slow: develop ## slow tests: labs of namespaces broken, killed, drilled; add-ons on a real API
	@$(PYTEST) $(CORE) $(MACHINES) tests/windows -m 'slow and not machines'

test-core-alone: develop ## the core's tests in a copy without lab/machines/ and lab/windows/
	@.venv/bin/python tests/without_rooms.py windows
	@.venv/bin/python tests/without_rooms.py windows machines

test-all: test test-machines test-windows-quick test-slow test-nspawn e2e test-cluster test-attached test-wine test-wine-topologies test-libvirt test-windows ## all tests; more than an hour

test-nspawn: ## tests of system containers, without a cluster; needs root
	@tools/setup develop nspawn
	@.venv/bin/python -m pytest --timeout 900 tests/machines/real/nspawn -m 'not clusters and not hosts and not drill'

test-libvirt: ## tests with real machines; installs and starts libvirt
	@tools/setup develop libvirt
	@.venv/bin/python -m pytest --timeout 900 tests/machines/real/libvirt -m 'not drill and not cluster and not topologies'

drill-libvirt: ## long tests: labs killed at every step, several at once, two hypervisors
	@tools/setup develop libvirt
	@.venv/bin/python -m pytest --timeout 3000 tests/machines/real/libvirt -m drill

drill-nspawn: ## labs and clusters on system containers, and a Wine node, killed at random or short of inotify; as root
	@tools/setup develop nspawn
	@.venv/bin/python -m pytest --timeout 1200 tests/machines/real/nspawn -m drill \
		--ignore tests/machines/real/nspawn/test_wine_node.py
	@.venv/bin/python tests/machines/real/nspawn/wine_tests.py \
		tests/machines/real/nspawn/test_wine_node.py -m drill || [ $$? = 4 ]

e2e: ## every scenario as a real Kubernetes cluster on system containers, as root
	@tools/setup develop nspawn
	@.venv/bin/python -m pytest --timeout 1800 -n 2 --dist loadfile --no-loadscope-reorder \
		tests/machines/real/nspawn/test_calico_clusters.py tests/machines/real/nspawn/test_scenarios.py \
		tests/machines/real/nspawn/test_three_control_planes.py \
		tests/machines/real/nspawn/test_own_network.py -m clusters

test-cluster: ## one cluster on system containers: killed, broken, rebooted, suspended; as root
	@tools/setup develop nspawn
	@.venv/bin/python -m pytest --timeout 1200 tests/machines/real/nspawn/test_container_cluster.py \
		tests/machines/real/nspawn/test_containers_killed.py -m 'clusters and not drill'

e2e-libvirt: ## real clusters on virtual machines; the first run builds what it needs
	@tools/setup develop libvirt
	@.venv/bin/python -m pytest --timeout 7200 tests/machines/real/libvirt -m 'cluster or topologies'

conformance: ## Kubernetes' own network tests on a cluster of system containers: FOCUS=, OUTPUT=
	@tools/setup develop nspawn
	@.venv/bin/python tests/machines/real/nspawn/conformance.py $${FOCUS:+--focus "$$FOCUS"} $${OUTPUT:+--output "$$OUTPUT"}

conformance-windows: ## Kubernetes' own tests of Windows nodes, on Wine; as root: FOCUS=, OUTPUT=
	@tools/setup develop nspawn
	@.venv/bin/python tests/machines/real/nspawn/conformance.py --windows $${FOCUS:+--focus "$$FOCUS"} $${OUTPUT:+--output "$$OUTPUT"}

test-nspawn-host: ## system containers on a host with systemd, in an emulated machine
	@tools/setup develop libvirt
	@.venv/bin/python -m pytest --timeout 3600 tests/machines/real/nspawn -m hosts

test-windows: ## tests of Windows guests, without Windows; installs and starts libvirt
	@tools/setup develop libvirt
	@.venv/bin/python -m pytest --timeout 3000 tests/windows

test-wine: ## a cluster with a Windows node on Wine, its pods, and such a node whose programs are killed; as root
	@tools/setup develop nspawn
	@.venv/bin/python tests/machines/real/nspawn/wine_tests.py \
		tests/machines/real/nspawn/test_wine_standins.py \
		tests/machines/real/nspawn/test_wine_cluster.py \
		tests/machines/real/nspawn/test_wine_pods.py \
		tests/machines/real/nspawn/test_wine_node.py -m 'clusters and not drill' || [ $$? = 4 ]

test-wine-topologies: ## clusters of other topologies with a Windows node on Wine, as root
	@tools/setup develop nspawn
	@.venv/bin/python tests/machines/real/nspawn/wine_tests.py \
		tests/machines/real/nspawn/test_wine_topologies.py || [ $$? = 4 ]

test-attached: ## a real cluster, seen only through its kubeconfig; as root
	@tools/setup develop nspawn
	@.venv/bin/python -m pytest --timeout 1200 tests/machines/real/nspawn/test_attached.py -m clusters

test-powershell: develop ## the guests' scripts by a real PowerShell: pwsh on PATH, or in $POWERSHELL_HOME
	@.venv/bin/python tests/windows/powershell_tests.py

lint: develop ## ruff and mypy
	@.venv/bin/ruff format --check .
	@.venv/bin/ruff check .
	@.venv/bin/mypy
	@MYPYPATH=$$(find tests -name '*.py' -not -path '*/stand_in/*' -printf '%h:' | tr : '\n' | sort -u | paste -sd:) \
		.venv/bin/mypy --config-file tests/mypy.ini --explicit-package-bases $$(find tests -name 'test_*.py')

mutate: develop ## break the program in each way of tests/cases/mutations.toml: do tests notice?
	@.venv/bin/python tools/mutate.py

differential: develop ## what this tree says of 18,000 random states, against another revision: OLD=HEAD, SCENARIOS=
	@set -f; .venv/bin/python tests/differential/compare.py -- "$$OLD" $$SCENARIOS

record: develop ## record anew what labs under faults answer to explain; half an hour: SCENARIOS=
	@set -f; PYTHONPATH=tests .venv/bin/python tests/netns/record_answers.py -- $$SCENARIOS

# bash has a RANDOM of its own
explain-drill: export FAULT_COUNT = $(RANDOM)
explain-drill: develop ## check that explain names every fault: SCENARIOS=, FAULTS=, SEED=, ROUNDS=1, PROVIDER=netns; RANDOM=20: random faults instead
ifneq ($(RANDOM),)
	@set -f; .venv/bin/python tests/netns/random_faults.py --count "$$FAULT_COUNT" \
		$${PROVIDER:+--provider "$$PROVIDER"} $${SEED:+--seed "$$SEED"} -- $$SCENARIOS
else
	@set -f; .venv/bin/python tests/netns/explain_drill.py $${PROVIDER:+--provider "$$PROVIDER"} \
		$${FAULTS:+--faults "$$FAULTS"} \
		$${SEED:+--seed "$$SEED"} $${ROUNDS:+--rounds "$$ROUNDS"} -- $$SCENARIOS
endif

bench: develop ## print benchmarks: ratios within one run
	@.venv/bin/python benchmarks/bench.py

size: develop ## count the lines of code
	@.venv/bin/python benchmarks/size.py

reference: develop ## write docs/reference and the scenarios' JSON Schema from the code
	@.venv/bin/python tools/reference.py

man: develop ## a manual page for each command into build/man
	@.venv/bin/python tools/man.py

pictures: develop ## draw the pictures of the README; needs chromium
	@.venv/bin/python tools/pictures.py

docs: develop ## build the site of docs/ into build/site
	@NO_MKDOCS_2_WARNING=1 .venv/bin/mkdocs build --quiet

test-lowest: ## the quick tests on the lowest versions of packages that are allowed (needs uv)
	@uv venv --quiet --clear build/lowest
	@uv pip install --quiet --python build/lowest/bin/python --resolution lowest-direct \
		--editable '.[dev,kubernetes,nspawn,windows]'
	@PYTEST_ADDOPTS="-p no:cacheprovider" $(subst .venv,build/lowest,$(PYTEST)) tests/unit tests/machines -m 'not machines and not slow'

audit: develop ## known weaknesses of the locked packages, where the index has advisories (needs pip-audit)
	@.venv/bin/python tools/audit.py

wheel: develop ## build the wheel into dist/
	@HYBRIDLAB_COMPLETE=1 .venv/bin/python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist .

release: develop ## build a release into dist/ and check it: manifest, tree, each Python that is here
	@.venv/bin/python tools/release.py

lock: ## update requirements*.txt: hashes, no index addresses (needs pip-tools)
	@for purpose in "" dev libvirt nspawn; do \
		extras=$${purpose:+--extra $$purpose}; \
		[ "$$purpose" != libvirt ] || extras="$$extras --extra windows --extra kubernetes"; \
		pip-compile --quiet --generate-hashes --allow-unsafe --strip-extras --no-header \
			--no-emit-index-url --no-emit-find-links --no-emit-trusted-host \
			--build-deps-for editable $$extras \
			--output-file requirements$${purpose:+-$$purpose}.txt pyproject.toml; \
	done

setup:
	@tools/setup run

develop: ## set .venv up for work on hybridlab itself
	@tools/setup develop
