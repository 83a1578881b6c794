# Every target sets up what it needs; `make` alone lists them.
SHELL := /bin/bash
.DEFAULT_GOAL := help
PYTHON ?= $(firstword $(shell command -v python3 python3.13 python3.12 python3.11 2>/dev/null))
VENV := .venv
RUN := $(VENV)/bin
READY := $(VENV)/.ready
# What a release is made with: uv and cyclonedx-py.
RELEASE := $(VENV)/release
RELEASE_READY := $(RELEASE)/.ready
# What the pages are built with: Sphinx.
PAGES := $(VENV)/pages
PAGES_READY := $(PAGES)/.ready
WORKERS ?= 2
IMAGE ?= localhost/polyarch:dev
# What is built carries the time of its commit and of nothing else.
SOURCE_DATE_EPOCH ?= $(or $(shell git log -1 --format=%ct 2>/dev/null),1577836800)
# What these tests do most is wait: for controllers, probes and programs that start.
CLUSTER_WORKERS ?= 3
# API servers, etcd and Helm collect garbage less often: a third less of their CPU time for more memory.
# Versions of Kubernetes on which `make older` runs: those that the sandbox can run besides the usual one.
KUBERNETES ?= $(shell $(RUN)/python -c "from polyarch.sandbox.versions import OTHER_MINORS; print(*OTHER_MINORS)")
CLUSTER := GOGC=300 $(RUN)/python -m tools.alone tests/oracles tests/cluster tests/faults -v -n $(CLUSTER_WORKERS) --dist loadfile --no-loadscope-reorder
LOCKED := --universal --generate-hashes --no-emit-index-url --no-header

# Install what a lock lists: $(call install,FOLDER OF THE ENVIRONMENT,LOCK). A line for every ten packages says how far it
# is. Modules are compiled when they are first imported, as most never are.
define install
	@set -o pipefail; fetched=0; PYTHONUNBUFFERED=1 "$(1)/bin/python" -m pip install --disable-pip-version-check --no-color \
	  --progress-bar off --no-compile --require-hashes -r $(2) | while read -r word rest; do case $$word in \
	    Collecting) fetched=$$((fetched + 1)); ((fetched % 10)) || echo "  $$fetched packages are there";; \
	    Installing) echo "  $$fetched packages are there, now they are unpacked";; esac; done
endef

.PHONY: help demo test check docs unit peers cluster long older real bench soak corpus picture generate lock dist image sbom krew bundle release-notes changelog clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(READY): requirements.lock pyproject.toml
	@[ -n "$(PYTHON)" ] || { echo "polyarch needs Python 3.11 or newer: install it (Debian, Ubuntu: apt install python3 python3-venv)"; exit 2; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "polyarch needs Python 3.11 or newer, $(PYTHON) is $$($(PYTHON) -V): give another with make PYTHON=/path/to/python3.11"; exit 2; }
	@echo "setting up $(VENV) with $$($(PYTHON) -V), once …"
	@$(PYTHON) -m venv $(VENV) || { echo "the venv module does not work here: install it (Debian, Ubuntu: apt install python3-venv)"; exit 2; }
	$(call install,$(VENV),requirements.lock)
	@$(RUN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $(READY)

$(RELEASE_READY): tools/release/requirements.lock | $(READY)
	@echo "setting up $(RELEASE), once …"
	@$(RUN)/python -m venv "$(realpath $(VENV))/release"
	$(call install,$(realpath $(VENV))/release,tools/release/requirements.lock)
	@touch $(RELEASE_READY)

$(PAGES_READY): tools/docs/requirements.lock | $(READY)
	@echo "setting up $(PAGES), once …"
	@$(RUN)/python -m venv "$(realpath $(VENV))/pages"
	$(call install,$(realpath $(VENV))/pages,tools/docs/requirements.lock)
	@touch $(PAGES_READY)

demo: $(READY) ## set everything up, bring up the sandbox, show the main job
	@$(RUN)/polyarch up --demo

test: check docs cluster ## set everything up, run every test but those of make long

check: $(READY) ## format, lint, types, imports, generated files, unit and property tests
	@echo "== format and lint"; $(RUN)/ruff format --check src tests bench tools && $(RUN)/ruff check src tests bench tools
	@echo "== types, imports, generated files"; \
	  $(RUN)/mypy & types=$$!; $(RUN)/mypy --config-file tests/mypy.ini & tests=$$!; \
	  $(RUN)/lint-imports --no-cache && $(RUN)/python -m tools.generate --check; found=$$?; \
	  wait $$types || found=1; wait $$tests || found=1; exit $$found
	@echo "== unit and property tests"; $(RUN)/pytest tests/unit tests/properties -q -n $(WORKERS)

unit: $(READY) ## unit and property tests only
	@$(RUN)/pytest tests/unit tests/properties -q -n $(WORKERS)

peers: $(READY) ## programs that tests compare with: Helm, kubectl, the kubelet's managers, operator-sdk's validator, skopeo …
	@echo "== peers (built once, then cached)"; $(RUN)/python -m tools.peers

cluster: $(READY) peers ## tests against the peers, a real control plane and a real registry, and the faults
	@echo "== binaries of the sandbox (built once, about 10 minutes on two cores, then cached)"; $(RUN)/polyarch sandbox fetch
	@echo "== oracles, faults and cluster tests"; $(CLUSTER) -m "not long"

long: $(READY) ## the tests that take longest, every night and before a release: what tests/long.py lists
	@$(RUN)/python -m tools.peers --long && $(RUN)/polyarch sandbox fetch && $(CLUSTER) -m long
	@$(MAKE) --no-print-directory older

older: $(READY) peers ## the part of `make long` on older versions of Kubernetes, each built once (KUBERNETES=1.30: only on this one)
	@failed=0; for version in $(KUBERNETES); do echo "== Kubernetes $$version"; \
	  $(RUN)/polyarch sandbox fetch --kubernetes $$version && POLYARCH_TEST_KUBERNETES=$$version $(CLUSTER) -m older || failed=1; \
	  done; exit $$failed

real: $(READY) peers ## tests on real kubelets and containers, as root, every night: containerd, runc, CNI plugins, buildah and qemu-user-static must be installed (LONG=1: with those of minutes; SUITE=trixie: in a virtual machine with that Debian)
	@$(RUN)/python -m tools.peers crio conmon && $(RUN)/polyarch sandbox fetch --real --nodes amd64=1,arm64=1 && $(if $(SUITE),$(RUN)/python -m tools.virtual_machine $(SUITE)) $(RUN)/pytest tests/real -v $(if $(LONG),,-m "not long")

docs: $(PAGES_READY) ## guide, comparison, design and decisions as a site with search, build/docs/index.html; a broken link is an error
	@echo "== pages"; PYTHONPATH=src $(PAGES)/bin/python -m sphinx -q -W --keep-going -j auto -c tools/docs -d build/docs/.doctrees -b html docs build/docs

bench: $(READY) ## what it costs: CPU time, requests, memory; compared with recorded values (SCENARIOS="rules warm" for some)
	@$(RUN)/python -m tools.peers skopeo
	@$(RUN)/python -m bench $(SCENARIOS)

soak: $(READY) ## all roles under churn and a fault every minute, MINUTES=30: memory flat, nothing stuck, wrong or left over
	@$(RUN)/python -m bench.soak --minutes $(or $(MINUTES),30)

corpus: $(READY) ## lint, fix and fix again over a folder of manifests, DIR=…, and with OPERATORS=1 over those of twenty operators; prints tables
	@$(RUN)/python -m tools.corpus $(if $(OPERATORS),--operators) $(DIR)

picture: $(READY) ## take docs/pictures/demo.svg again, of a demo that runs now; on a machine that does nothing else
	@$(RUN)/python tools/terminal_picture.py docs/pictures/demo.svg "make demo" 171 $(RUN)/polyarch up --demo

generate: $(READY) ## write the CRDs, the chart, the pages of rules, rights and metrics and the protobuf messages again
	@$(RUN)/python -m tools.generate

lock: $(READY) $(RELEASE_READY) ## resolve requirements.lock again
	@$(RELEASE)/bin/uv pip compile $(LOCKED) --all-extras --group dev --upgrade pyproject.toml -o requirements.lock
	@# The part of it that runs: what the image is made of and what its bill of materials lists.
	@$(RELEASE)/bin/uv pip compile $(LOCKED) --extra fast --extra numa -c requirements.lock pyproject.toml -o deploy/image/requirements.lock
	@$(RELEASE)/bin/uv pip compile $(LOCKED) --upgrade --python-version 3.11 tools/release/requirements.in -o tools/release/requirements.lock
	@$(RELEASE)/bin/uv pip compile $(LOCKED) --upgrade --python-version 3.11 tools/docs/requirements.in -o tools/docs/requirements.lock

dist: $(READY) ## sdist and wheel in dist/, the same bytes from the same commit
	@rm -rf dist
	@SOURCE_DATE_EPOCH=$(SOURCE_DATE_EPOCH) $(RUN)/python -m hatchling build -d dist

image: dist ## container image of this commit with buildah or docker (IMAGE=name:tag, BASE=an image with python3, PLATFORM=linux/s390x)
	@SOURCE_DATE_EPOCH=$(SOURCE_DATE_EPOCH) REVISION=$(shell git rev-parse HEAD 2>/dev/null) \
	  $(RUN)/python -m tools.image $(IMAGE) $(if $(BASE),--base $(BASE)) $(if $(PLATFORM),--platform $(PLATFORM))

sbom: $(READY) $(RELEASE_READY) ## bill of materials of the image and the plugin, dist/polyarch.cdx.json (CycloneDX)
	@mkdir -p dist
	@$(RELEASE)/bin/cyclonedx-py requirements --pyproject pyproject.toml --mc-type application --output-reproducible \
	  --output-format JSON --output-file dist/polyarch.cdx.json deploy/image/requirements.lock

krew: dist $(RELEASE_READY) ## archives and manifest of `kubectl polyarch` in dist/krew (PLATFORMS=linux-amd64 PYTHONS=3.13: only these)
	@SOURCE_DATE_EPOCH=$(SOURCE_DATE_EPOCH) $(RUN)/python -m tools.release.krew --uv $(RELEASE)/bin/uv \
	  $(addprefix --platform=,$(PLATFORMS)) $(addprefix --python=,$(PYTHONS))

bundle: $(READY) ## OLM bundle of a release in dist/bundle (IMAGE=name@digest)
	@$(RUN)/python -m tools.generate.olm_bundle dist/bundle --image $(IMAGE)

release-notes: $(READY) ## notes of a release in dist/release-notes.md (TAG=v1.2.3)
	@mkdir -p dist
	@$(RUN)/python -m tools.release.notes $(TAG) > dist/release-notes.md

changelog: $(READY) ## collect changelog.d into CHANGELOG.md for a release
	@$(RUN)/towncrier build --yes

clean: ## remove the virtual environment and caches of tools (not the sandbox's binaries)
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
