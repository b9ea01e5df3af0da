# The verbs of this repository. CI (.ci/run) calls the same ones.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

GO ?= go
# Extra flags for the verbs that run tests: make test TESTFLAGS='-short -run TestName'
TESTFLAGS ?=
# Time given to each fuzz target.
FUZZTIME ?= 20s
# Arguments of the benchmark program: make bench ARGS=-h
ARGS ?=

.PHONY: help
help: ## print the verbs
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

.PHONY: test
test: ## unit tests of all packages
	$(GO) test $(TESTFLAGS) ./...

.PHONY: race
race: ## the same under the race detector, with the engine's checked mode on
	TIDEMILL_CHECKED=1 $(GO) test -race $(TESTFLAGS) ./...

.PHONY: lint
lint: ## format, vet, staticcheck and the repository's own rules
	TIDEMILL_LINT=1 $(GO) test -count=1 $(TESTFLAGS) ./internal/lint

.PHONY: fmt
fmt: ## format every Go file
	$(GO) tool gofumpt -w .

.PHONY: e2e
e2e: ## end-to-end tests with real processes
	$(GO) test -count=1 -tags e2e $(TESTFLAGS) ./...

.PHONY: crash
crash: ## kill a real job at least 50 times and account for every line (TIDEMILL_CRASH_ROUNDS)
	TIDEMILL_CRASH_ROUNDS=$${TIDEMILL_CRASH_ROUNDS:-150} $(GO) test ./test/crash -count=1 -timeout 10m -v -run Killed $(TESTFLAGS)

.PHONY: e2e-hdfs
e2e-hdfs: ## the same on a real HDFS whose nodes die too: needs Java 17 and Maven (TIDEMILL_HDFS_ROUNDS)
	TIDEMILL_HDFS=1 $(GO) test ./test/hdfs -count=1 -timeout 10m -v $(TESTFLAGS) | grep -vE '^ *(=== |--- PASS: .*/)'

.PHONY: conformance
conformance: ## compare with recorded Spark Streaming results, one line a family
	$(GO) test ./internal/conformance -count=1 -v -run TestGolden $(TESTFLAGS) | grep -E "family|FAIL"

.PHONY: fuzz
fuzz: ## run each fuzz target for FUZZTIME (20s)
	@targets=$$(grep -rE '^func Fuzz[A-Za-z0-9_]*\([a-z]+ \*testing\.F\)' --include='*_test.go' . \
		| sed -E 's|^(.*)/[^/]*:func (Fuzz[A-Za-z0-9_]*).*|\1 \2|' | sort -u || true); \
	if [ -z "$$targets" ]; then echo "no fuzz targets"; exit 0; fi; \
	while read -r dir name; do \
		echo "fuzz $$dir $$name for $(FUZZTIME)"; \
		$(GO) test -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZTIME) "$$dir"; \
	done <<< "$$targets"

.PHONY: bench
bench: ## run the benchmark program
	$(GO) run ./bench $(ARGS)

.PHONY: docs
docs: ## write the generated pages of docs/ again
	$(GO) test . -count=1 -run Docs -update

.PHONY: bench-spark
bench-spark: ## state beside Spark: needs Java 17 and Maven, takes minutes
	$(GO) run ./bench -run spark-state
