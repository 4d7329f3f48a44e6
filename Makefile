# `make run` and `make test` do all set-up and work on a fresh Debian 12 machine, as root or as a user with sudo.
# BUILD picks the preset (release, debug, asan, tsan); JOBS the build's parallelism.
BUILD ?= release
JOBS  ?= $(shell nproc)
MOTLEY = build/$(BUILD)/motley
SOURCES = $(shell git ls-files '*.h' '*.cpp' 2>/dev/null)

.PHONY: help setup configure build run test property long bench ops audit device-check vendor-graphs cuda-all cuda-report sanitize asan tsan spike mismatch performance soak-sandbox fleet-check fleet chaos fuzz fuzz-seeds format lint check-style clean

help:
	@echo 'make run       set up, build, run experiments/quickstart.toml'
	@echo 'make test      set up, build, run every fast test'
	@echo 'make build     set up and build build/$(BUILD)/motley'
	@echo 'make property  many random cases of "a row never depends on its neighbours"; CASES=1000 SEED=1'
	@echo 'make long      device kernels on the emulator at lengths that take it long'
	@echo 'make soak-sandbox  1,000 sandboxed episodes back to back, 100 sandboxes at once, time to start (about a minute)'
	@echo 'make fleet-check  a run of paced samplers beside its simulation, five times (about two minutes)'
	@echo 'make fleet     the quickstart on machines of its own, undisturbed and disturbed; SEEDS=3 (about ten minutes)'
	@echo 'make chaos     a fleet to which everything happens; MINUTES=10 SEED=1'
	@echo 'make fuzz      every decoder of bytes from outside under libFuzzer; SECONDS=600 ONLY=NAME; needs clang'
	@echo 'make sanitize  the fast tests under AddressSanitizer, UndefinedBehaviorSanitizer and ThreadSanitizer'
	@echo 'make bench     times the kernels on this machine'
	@echo 'make performance  measures what docs/performance.md reports and writes its tables; PEERS=FOLDER for the peers'
	@echo 'make ops       writes docs/ops.md: which kernel exists on which device'
	@echo 'make audit     writes the tables of docs/audit.md: every correction against the exact gradient'
	@echo 'make device-check  builds the folder that checks and times a GPU, and runs it where there is one'
	@echo 'make vendor-graphs  compiles attention by cuDNN without a GPU'
	@echo 'make cuda-all  compiles the CUDA kernels for every architecture; make cuda-report: writes docs/cuda-report.md, their registers'
	@echo 'make spike     the arms and seeds of experiments/spike.toml (about 20 minutes)'
	@echo 'make mismatch  trains the quickstart and writes the tables of docs/mismatch.md (about five minutes)'
	@echo 'make format    clang-format all sources; make lint: clang-tidy them'

setup:
	@./setup/install.sh

configure: setup
	@cmake --preset $(BUILD) >build-$(BUILD).log 2>&1 || { cat build-$(BUILD).log; rm -f build-$(BUILD).log; exit 1; }
	@rm -f build-$(BUILD).log

build: configure
	cmake --build build/$(BUILD) -j $(JOBS)

run: build
	$(MOTLEY) run experiments/quickstart.toml

test: build check-style
	ctest --test-dir build/$(BUILD) --output-on-failure

# CASES random cases of every property from SEED on; a failure prints the seed that repeats it.
CASES ?= 1000
SEED  ?= 1
property: configure
	cmake --build build/$(BUILD) -j $(JOBS) --target test_kernels test_tensor
	MOTLEY_PROPERTY_CASES=$(CASES) MOTLEY_PROPERTY_SEED=$(SEED) build/$(BUILD)/test_kernels '[property]'
	MOTLEY_PROPERTY_CASES=$(CASES) MOTLEY_PROPERTY_SEED=$(SEED) build/$(BUILD)/test_tensor '[property]'

long: configure
	cmake --build build/$(BUILD) -j $(JOBS) --target test_kernels
	build/$(BUILD)/test_kernels '[long]'
soak-sandbox: configure
	cmake --build build/$(BUILD) -j $(JOBS) --target test_envs
	build/$(BUILD)/test_envs '[soak-sandbox]'

# A real run of paced samplers, five times, beside simulations that are fed with what it measured.
fleet-check: configure
	cmake --build build/$(BUILD) -j $(JOBS) --target test_actors
	build/$(BUILD)/test_actors '[.fleet-check]'

# Three samplers on machines of their own train the quickstart: one is killed, one is unplugged, one is stopped, one joins
# late. SEEDS pairs of runs, undisturbed and disturbed.
SEEDS ?= 3
fleet: configure
	cmake --build build/$(BUILD) -j $(JOBS) --target test_fleet
	FLEET_SEEDS=$(SEEDS) build/$(BUILD)/test_fleet '[.fleet]'

# MINUTES of a schedule that follows from SEED: kills, stops, partitions, bad links, and the run itself killed and resumed.
MINUTES ?= 10
chaos: configure
	cmake --build build/$(BUILD) -j $(JOBS) --target test_fleet
	CHAOS_MINUTES=$(MINUTES) CHAOS_SEED=$(SEED) build/$(BUILD)/test_fleet '[.chaos]'

# Each decoder of bytes from outside under libFuzzer and the sanitizers, SECONDS long, or that named ONLY; MERGE=1 keeps
# the inputs that reach new code. Needs clang.
SECONDS ?= 600
fuzz: configure
	cmake --build build/$(BUILD) -j $(JOBS) --target motley_app
	JOBS=$(JOBS) tests/fuzz/fuzz.sh $(SECONDS) $(ONLY)
fuzz-seeds: configure
	cmake --build build/$(BUILD) -j $(JOBS) --target test_app
	build/$(BUILD)/test_app '[.write-fuzz-seeds]'

bench: configure-bench
	cmake --build build/bench -j $(JOBS) --target motley_bench
	build/bench/motley_bench

performance: configure-bench
	cmake --build build/bench -j $(JOBS) --target motley trainer_bench
	tests/bench/peers/products.sh build/bench --quick >/dev/null
	$(if $(PEERS),tests/bench/peers/venv.sh $(PEERS))
	python3 tests/bench/performance.py build/bench --only '$(ONLY)' $(if $(PEERS),--peers $(abspath $(PEERS)))

ops: configure
	cmake --build build/$(BUILD) -j $(JOBS) --target test_kernels
	build/$(BUILD)/test_kernels '[.write-ops]'

audit: configure
	cmake --build build/$(BUILD) -j $(JOBS) --target test_app
	build/$(BUILD)/test_app '[.write-audit]'

# One folder, build/device, that holds all that a machine with a GPU needs beside CUDA's own libraries, for one
# architecture (ARCH; by default the GPU's here, else 90a), and its run where there is a GPU; on another machine:
# copy the folder and run its device_check.sh.
ARCH ?= $(or $(shell nvidia-smi --query-gpu=compute_cap --format=csv,noheader -i 0 2>/dev/null | tr -d . | sed 's/^\(90\|1[0-9]*\)$$/\1a/'),90a)
device-check:
	@command -v nvcc >/dev/null || { echo 'device-check: nvcc is not here: build on a machine with the CUDA toolkit' >&2; exit 1; }
	cmake --preset cuda '-DMOTLEY_CUDA_ARCH=$(ARCH)' -DMOTLEY_SHARED_KERNELS=ON >/dev/null
	cmake --build build/cuda -j $(JOBS) --target device_check
	@if nvidia-smi >/dev/null 2>&1; then build/device/device_check.sh; \
	 else echo 'device-check: built for $(ARCH); no GPU here: copy build/device to a machine with one and run device_check.sh'; fi

# Whether cuDNN takes and compiles the graphs of attention, for devices that need not be here. Needs the CUDA toolkit with
# cuDNN, and no GPU; a minute and a half.
vendor-graphs:
	cmake --preset cuda >/dev/null
	cmake --build build/cuda -j $(JOBS) --target vendor_graphs_run

# Every CUDA kernel for every architecture that is built for; and docs/cuda-report.md, what ptxas says of each kernel for
# those REPORTED, which fails when one spills registers.
REPORTED = 80;90a;100a;120a
ARCHS = 80;86;89;90a;100a;103a;120a
cuda-all:
	cmake --preset cuda -B build/cuda-all '-DMOTLEY_CUDA_ARCH=$(ARCHS)' >/dev/null
	cmake --build build/cuda-all -j $(JOBS) --target cuda_objects
cuda-report:
	cmake --preset cuda -B build/cuda-report '-DMOTLEY_CUDA_ARCH=$(REPORTED)' >/dev/null
	cmake --build build/cuda-report -j $(JOBS) --target cuda_report
	cp build/cuda-report/cuda-report.md docs/cuda-report.md

# Two suites at once: most of their time is one thread's. Debian's CAF is not instrumented for threads, so its actors are
# left out of the tsan run; algos starts no thread but through kernels.
asan: configure-asan
	cmake --build build/asan -j $(JOBS)
	ctest --test-dir build/asan --output-on-failure -j 2
tsan: configure-tsan
	cmake --build build/tsan -j $(JOBS) --target test_kernels test_tensor test_envs
	ctest --test-dir build/tsan --output-on-failure -j 2 -R '^(kernels|tensor|envs)$$'
configure-%: setup
	cmake --preset $* >/dev/null
sanitize: asan tsan

spike: build
	./experiments/spike.sh $(MOTLEY)

mismatch: build
	./experiments/mismatch.sh $(MOTLEY)

check-style:
	@./setup/check_style.sh

format:
	clang-format -i $(SOURCES)
lint: configure-debug  # each file by itself
	run-clang-tidy -quiet -p build/debug '^$(CURDIR)/(kernels|tensor|algos|envs|actors|app)/.*\.cpp$$'

clean:
	rm -rf build
