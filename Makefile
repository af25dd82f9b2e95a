# SPDX-License-Identifier: Apache-2.0
# Short names for what the CMake presets do. Each target first installs what is missing (scripts/setup.sh;
# COMET_NO_INSTALL=1 only checks).

PREFIX ?= /usr/local
FUZZ_SECONDS ?= 60
RANDOM_GRAPHS ?= 10000
# Kernels are emulated with the sanitizers only: that takes as long to compile as all the rest.
# `make` builds kernels for all architectures. For tests one is enough, and where no GPU will run them they only have to compile.
KERNELS ?= -DCOMET_CUDA_ARCHS="80;90" -DCOMET_CUDA_QUICK=OFF
TEST_KERNELS ?= -DCOMET_CUDA_ARCHS=90 -DCOMET_CUDA_QUICK=$(if $(wildcard /dev/nvidiactl),OFF,ON)
# What a wheel has machine code for: A100, RTX 30 and 40, H100, B200, RTX 50. Each takes about four minutes to
# compile on two cores (bench/results/codec-gpu.md): `make wheel ARCHS=90` builds for one.
ARCHS ?= 80;86;89;90;100;120
JOBS ?= $(shell nproc 2>/dev/null || echo 2)

BUILD = cmake --preset $(1) $(2) && cmake --build --preset $(1) --parallel $(JOBS)
TEST_OPTIONS = -DCOMET_WERROR=ON -DCOMET_TEST_EMULATION=OFF -DCOMET_BUILD_PYTHON=ON $(TEST_KERNELS)
TEST_RELEASE = $(call BUILD,release,$(TEST_OPTIONS))
CTEST = ctest --preset $(1) --parallel $(JOBS)

.PHONY: all demo test browser-test python-test python-stress torch-matrix gpu-test wheel asan tsan debug fuzz \
	coverage aarch64 format install clean help setup
.DEFAULT_GOAL := all

all: setup ## build the release preset: build/release/comet, build/release/lib/libcomet.so
	@$(call BUILD,release,$(KERNELS))

demo: setup ## build, then train a small network uncompressed and compressed: about two minutes, a table and a report
	@cmake --preset release -B build/demo -DCOMET_CUDA=OFF -DCOMET_BUILD_TESTS=OFF # no kernels: they take minutes to compile
	@cmake --build build/demo --parallel $(JOBS) --target comet_command
	@build/demo/comet demo --report build/demo/demo-report.html

# Python with PyTorch is looked for before anything is built: the first time it is downloaded (scripts/torch_venv.sh). Exit code 2: the user's own cannot be used.
test: ## build and run all tests: release with warnings as errors, with the sanitizers, threads with theirs
	@scripts/setup.sh test
	@start=$$(date +%s) && \
	{ torch=$$(scripts/torch_venv.sh) || [ $$? = 1 ] || { echo "$$torch" >&2; exit 1; }; } && \
	$(TEST_RELEASE) && $(call CTEST,release) && \
	$(call BUILD,asan,-DCOMET_WERROR=ON) && $(call CTEST,asan) && \
	$(call BUILD,tsan,-DCOMET_WERROR=ON) && $(call CTEST,tsan) && \
	echo "make test: everything passed, release, asan and tsan, in $$(($$(date +%s) - start)) s" && \
	if gpu=$$(build/release/tests/gpu_state); then echo "make test: GPU tests ran on $$gpu"; \
	else echo "make test: GPU tests ran emulated on the CPU only: $$gpu"; fi && \
	if scripts/torch_venv.sh --find >/dev/null; then \
	echo "make test: the trainer was compared with PyTorch, the Python package was tested with it"; \
	else echo "make test: the trainer was NOT compared with PyTorch, the Python package was NOT tested: $$torch"; fi

browser-test: ## build the command, open its reports in Chromium (installed if missing, 100 MB) and look for faults
	@scripts/setup.sh browser
	@cmake --preset release -B build/browser -DCOMET_CUDA=OFF -DCOMET_TEST_EMULATION=OFF
	@cmake --build build/browser --parallel $(JOBS) --target comet_command --target report_probe
	@python3 -B tests/report/check_pages.py build/browser/comet build/browser/tests/report_probe

python-test: ## build the module for Python and run the tests of the package, with the PyTorch of make test
	@scripts/setup.sh test
	@scripts/torch_venv.sh >/dev/null; $(TEST_RELEASE) --target comet_python && scripts/python_test.sh build/release

python-stress: ## RANDOM_GRAPHS=10000 random programs, plain and with Comet: some ten minutes on the CPU
	@scripts/setup.sh test
	@scripts/torch_venv.sh >/dev/null; $(TEST_RELEASE) --target comet_python && \
	COMET_TEST_GRAPHS=$(RANDOM_GRAPHS) scripts/python_test.sh build/release tests/test_random_graphs.py

torch-matrix: ## the same with the oldest, a middle and the newest PyTorch; downloads them once
	@scripts/setup.sh test
	@$(TEST_RELEASE) --target comet_python && scripts/torch_matrix.sh build/release

gpu-test: ## build, run what needs a GPU, then under compute-sanitizer; fails where there is none
	@scripts/setup.sh test
	@$(call BUILD,release,$(KERNELS) -DCOMET_BUILD_PYTHON=ON) && scripts/gpu_test.sh build/release

wheel: ## build the wheel of the Python package for the GPUs in ARCHS="80;86;89;90;100;120" into build/wheel
	@scripts/setup.sh wheel
	@scripts/wheel.sh build/wheel COMET_CUDA_ARCHS="$(ARCHS)"

asan: setup ## build with AddressSanitizer and UndefinedBehaviorSanitizer, run the tests
	@$(call BUILD,asan) && $(call CTEST,asan)

tsan: setup ## build with ThreadSanitizer, run the tests of what has threads of its own
	@$(call BUILD,tsan) && $(call CTEST,tsan)

debug: setup ## build without optimisation, run the tests
	@$(call BUILD,debug) && $(call CTEST,debug)

fuzz: ## run each fuzz target for FUZZ_SECONDS=60 (clang)
	@scripts/setup.sh fuzz
	@$(call BUILD,fuzz) && scripts/fuzz.sh build/fuzz $(FUZZ_SECONDS)

coverage: setup ## run the tests with line counts, print the coverage of each file
	@$(call BUILD,coverage) && scripts/coverage.sh build/coverage

aarch64: ## cross-compile for 64-bit Arm and run the tests under qemu-user
	@scripts/setup.sh aarch64
	@scripts/aarch64_dependencies.sh build/aarch64-dependencies
	@$(call BUILD,aarch64) && $(call CTEST,aarch64)

format: ## format all C code (clang-format 14)
	@scripts/setup.sh format
	@scripts/format.sh

install: all ## install into PREFIX=/usr/local (DESTDIR is honoured)
	@cmake --install build/release --prefix $(PREFIX)

clean: ## remove build/
	@rm -rf build

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "make %-12s %s\n", $$1, $$2}' Makefile

setup:
	@scripts/setup.sh
