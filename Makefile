# The door to modeld.  CMake does the building; tools/setup.sh fetches what is needed first.
#
#   make            build build/modeld           make test       everything CI runs
#   make demo       see it work (some minutes)   make test-fast  some minutes, no model
#   make check      sanitizers, layers, format   make bench      figures of this machine
#   make install PREFIX=/usr/local               make format     clang-format, in place
#   make fuzz FUZZ_SECONDS=600                   libFuzzer (clang) on what reads other people's files
#   make soak SOAK_SECONDS=1800                  many clients for long: does memory stay within its limits?
#   make bench-200k BENCH_TOKENS=200000          one very long conversation of SmolLM2: cold, warm, restarted (10 GB of RAM and disk)
#   make bench-depth                             decode and prefill at depths up to 131,072, beside dense (an hour)
#   make device-check                            on a machine with a GPU: what only that can prove, in 8 minutes
#   make past                                    310,000 tokens past a trained window, exact model (some minutes)
#   make needle                                  answers of Qwen2.5-Coder-0.5B far past its hot set (docs/quality.md)
#
# MODELD_ACCEL=cpu|cuda|vulkan  MODELD_LLAMA_ROOT=DIR  MODELD_OPENVINO=AUTO|ON|OFF  PRESET=default|ci|...
# MODELD_OPENVINO_DEVICES=cpu|all  SEED=N (tests)  JOBS=N

MAKEFLAGS += --no-print-directory
PRESET ?= default
PREFIX ?= /usr/local
JOBS ?= $(shell nproc)
FUZZ_SECONDS ?= 600
SOAK_SECONDS ?= 1800
MODELD_ACCEL ?= cpu
MODELD_LLAMA_ROOT ?=
MODELD_OPENVINO ?= AUTO
MODELD_OPENVINO_DEVICES ?= cpu
BUILD = build$(if $(filter-out default ci,$(PRESET)),/$(PRESET))
export MODELD_ACCEL MODELD_LLAMA_ROOT MODELD_OPENVINO MODELD_OPENVINO_DEVICES

CONFIGURE = cmake --preset $(PRESET) --log-level=WARNING \
	-DMODELD_ACCEL="$(MODELD_ACCEL)" -DMODELD_LLAMA_ROOT="$(MODELD_LLAMA_ROOT)" \
	-DMODELD_OPENVINO="$(MODELD_OPENVINO)"

.PHONY: all build-all setup demo test test-fast check fuzz soak needle past bench bench-200k bench-depth device-check format install clean distclean
all: setup build-all

build-all:
	@$(CONFIGURE) >/dev/null
	@cmake --build $(BUILD) -j $(JOBS)

setup:
	@tools/setup.sh

demo:
	@tools/setup.sh demo
	@$(MAKE) build-all
	@python3 tools/demo.py $(BUILD)/modeld .deps/models/smollm2.gguf .deps/llama/include/llama.h

test: all
	@for model in smollm2 gemma3-270m qwen2.5-coder-0.5b; do tools/setup.sh model $$model || exit 1; done
	@cmake --build $(BUILD) -j $(JOBS) --target tests
	@MODELD_TEST_BUILD=$(BUILD) tests/run.sh all $(SEED)

test-fast: all
	@cmake --build $(BUILD) -j $(JOBS) --target tests
	@MODELD_TEST_BUILD=$(BUILD) tests/run.sh fast $(SEED)

check: setup
	@tools/check.sh

fuzz: PRESET = fuzz
fuzz: setup
	@$(CONFIGURE) >/dev/null
	@cmake --build build/fuzz -j $(JOBS) --target fuzz
	@FUZZ_SECONDS=$(FUZZ_SECONDS) tools/fuzz.sh build/fuzz

soak: all
	@cmake --build $(BUILD) -j $(JOBS) --target tests
	@python3 bench/soak.py $(BUILD) $(SOAK_SECONDS)

needle: all
	@tools/setup.sh model qwen2.5-coder-0.5b
	@$(BUILD)/modeld eval needle -m .deps/models/qwen2.5-coder-0.5b.gguf --haystack code --hot 1024 --length 6000 \
		--depths 0,50,100 --policy t1

past: all
	@cmake --build $(BUILD) -j $(JOBS) --target conformance-test_past_llama_exact
	@MODELD_TEST_PAST_TOKENS=310000 $(BUILD)/tests/conformance/test_past_llama_exact

# The peer is fetched into a folder of its own; PEER= leaves it out.
PEER ?= .deps/peer
bench: all
	@for model in smollm2 qwen2.5-coder-0.5b; do tools/setup.sh model $$model || exit 1; done
	@$(BUILD)/modeld bench -m .deps/models/smollm2.gguf
	@python3 bench/engines.py $(BUILD)/modeld .deps/models/smollm2.gguf
	@python3 bench/plan.py $(BUILD)/modeld
	@cmake --build $(BUILD) -j $(JOBS) --target support-past_llama
	@$(BUILD)/tests/support/past_llama .deps/models/smollm2.gguf .deps/llama/include/llama.h
	@cmake --build $(BUILD) -j $(JOBS) --target support-attention_bench
	@$(BUILD)/tests/support/attention_bench
	@if [ -n "$(PEER)" ]; then tools/setup.sh peer || exit 1; fi
	@for model in smollm2 qwen2.5-coder-0.5b; do \
		python3 bench/sessions.py $(BUILD)/modeld .deps/models/$$model.gguf $(if $(PEER),--peer $(PEER)); done
	@python3 bench/restore.py $(BUILD)/modeld .deps/models/smollm2.gguf
	@python3 bench/depth.py $(BUILD)/modeld .deps/models/smollm2.gguf
	@python3 bench/retrieval.py $(BUILD)/modeld .deps/models/smollm2.gguf

BENCH_TOKENS ?= 200000
bench-200k: all
	@tools/setup.sh model smollm2
	@python3 bench/long.py $(BUILD)/modeld .deps/models/smollm2.gguf --tokens $(BENCH_TOKENS)

bench-depth: all
	@tools/setup.sh model smollm2
	@cmake --build $(BUILD) -j $(JOBS) --target support-exact_model
	@$(BUILD)/tests/support/exact_model $(BUILD)/exact-140000.gguf 140000
	@python3 bench/depth.py $(BUILD)/modeld $(BUILD)/exact-140000.gguf --depths 2048,8192,32768,131072
	@python3 bench/depth.py $(BUILD)/modeld .deps/models/smollm2.gguf --depths 2048,8192,32768

# Without a GPU it says that nothing was checked, and that is no failure here; whoever must know asks the script, which exits 77.
device-check:
	@tools/device-check.sh || [ $$? = 77 ]

format:
	@tools/check-format.sh --fix

install: all
	@cmake --install $(BUILD) --prefix "$(abspath $(PREFIX))"

clean:
	rm -rf build

distclean: clean
	rm -rf .deps
