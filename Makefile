# Every target that a person or the continuous run needs. `make` lists them.

GO ?= go
# What runs tests; the continuous run replaces it to count them.
GOTEST ?= $(GO) test
TOOL = $(GO) tool -modfile=tools.mod
FUZZTIME ?= 30000x
BENCHTIME ?= 1s
SEEDS ?= 300
CYCLES ?= 200
CUTS ?= 30
FAULTS ?= 24
MOVES ?= 500
FREEZE ?= 30s
# Which tests of clusters make nemesis runs.
NEMESIS ?= .

# Packages with Go code; the examples are built for WebAssembly by their tests.
PKGS = ./...
# Their nodes are processes, which the race detector does not look into; the
# same code runs under it in tests/bubble, tests/entities and the packages' own.
PROCESSES = /tests/(blackbox|cluster|faults|kill|mutants|sends)$$

.DEFAULT_GOAL := help
.PHONY: help build test race check fmt fmt-check vet lint generate generated fuzz bench sim kill powerloss nemesis sends chaos states failover mutants

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## build bin/hostd
	CGO_ENABLED=0 $(GO) build -trimpath -o bin/hostd ./cmd/hostd

test: ## run every test
	$(GOTEST) $(PKGS)

race: ## run the tests in short mode under the race detector
	$(GOTEST) -race -short -timeout 20m $$($(GO) list $(PKGS) | grep -vE '$(PROCESSES)')

check: fmt-check vet lint generated race ## all that must hold before a commit

fmt: ## format the code
	gofmt -w $$(git ls-files '*.go')

fmt-check:
	@out=$$(gofmt -l $$(git ls-files '*.go')); if [ -n "$$out" ]; then echo "not formatted, run make fmt:"; echo "$$out"; exit 1; fi

vet: ## go vet, with the planted faults too
	$(GO) vet $(PKGS)
	$(GO) vet -tags mutants ./tests/mutants

# S1016 would turn one message into another because their fields are alike today.
lint: ## staticcheck
	$(TOOL) staticcheck -checks inherit,-S1016 $(PKGS)

generate: ## generate api/gen from api/proto
	api/generate.sh

generated: ## fail when the committed generated code is not what the sources give
	api/generate.sh check

fuzz: ## run each fuzz target FUZZTIME times (30000x), or for a time such as 1m
	@set -e; git grep -l '^func Fuzz' -- '*_test.go' | while read -r file; do \
		for target in $$(sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p' "$$file"); do \
			echo "fuzz $$(dirname "$$file") $$target"; \
			$(GOTEST) -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) "./$$(dirname "$$file")" </dev/null; \
		done; \
	done

bench: ## run every benchmark for BENCHTIME (default 1s)
	$(GO) test -run '^$$' -bench . -benchmem -benchtime $(BENCHTIME) $(PKGS)

sim: ## run the seeded simulator for SEEDS seeds (default 300)
	$(GOTEST) -run '^TestSeeds$$' -count=1 -timeout 30m ./tests/sim -seeds $(SEEDS)

kill: ## kill a node under load CYCLES (200) times and check all it said
	$(GOTEST) -run '^TestKill' -count=1 -timeout 40m ./tests/kill -cycles $(CYCLES)

powerloss: ## cut a node's power under load CUTS times (30), and damage every file; needs root
	$(GOTEST) -run '^(TestPowerLoss|TestDamage)' -count=1 -timeout 20m ./tests/faults -cuts $(CUTS) -damages

nemesis: ## kill, freeze, part, empty and move nodes of a cluster FAULTS (24) and MOVES (500) times; partitions need root
	$(GOTEST) -run '$(NEMESIS)' -count=1 -timeout 60m ./tests/cluster -skip '^(TestChaos|TestStatesAreReplays)$$' -pause 0 -faults $(FAULTS) -moves $(MOVES) -freeze $(FREEZE) -kills 3 -v

sends: ## kill nodes and move shards FAULTS (24) times while SENDS (100000) sends and TRANSFERS (10000) transfers are made
	$(GOTEST) -count=1 -timeout 60m ./tests/sends -sends $(or $(SENDS),100000) -transfers $(or $(TRANSFERS),10000) -faults $(FAULTS) -v

chaos: ## kill, freeze, part and move nodes FAULTS (24) times while entities use all that they can; partitions need root
	$(GOTEST) -run '^TestChaos$$' -count=1 -timeout 30m ./tests/cluster -chaos.faults $(FAULTS) -v

states: ## replay ENTITIES (10000) with EVENTS (200) each on every replica, SAMPLE (200) of them interpreted too
	$(GOTEST) -run '^TestStatesAreReplays$$' -count=1 -timeout 60m ./tests/cluster -states.entities $(or $(ENTITIES),10000) -states.events $(or $(EVENTS),200) -states.sample $(or $(SAMPLE),200) -v

failover: ## print what callers see when a node of 256 shards is killed, KILLS (10) times
	$(GOTEST) -run '^TestFailOver$$' -count=1 -timeout 30m ./tests/cluster -kills $(or $(KILLS),10) -failover-shards 256 -v

mutants: ## plant each known fault in turn; a test must fail on it
	$(GOTEST) -tags mutants -run '^TestMutantsAreCaught$$' -timeout 40m -count=1 ./tests/mutants
