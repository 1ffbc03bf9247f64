# Targets for developers and for .ci/run. `make` lists them.

GO ?= go
# The test runner; .ci/run replaces it to count the tests.
GOTEST ?= $(GO) test
TOOL = $(GO) tool -modfile=tools.mod
FUZZTIME ?= 30000x
BENCHTIME ?= 1s
SEEDS ?= 300
CYCLES ?= 200
CUTS ?= 30
FAULTS ?= 24
MOVES ?= 500
CHANGES ?= 500
FREEZE ?= 30s
# What make cross does for each pair after type-checking it, and for which pairs.
CROSS ?= -build -vet
PAIRS ?=
# The cluster tests that make nemesis runs.
NEMESIS ?= .
# What make powerloss and make upgrade do beyond their shortest form.
DAMAGES ?= -damages
ORDERS ?= -both

# Packages with Go code; the examples are built for WebAssembly by their tests.
PKGS = ./...
# These tests start nodes as processes, which the race detector does not cover.
# The same code runs under it in tests/virtualtime, tests/e2e/entities and in the
# packages' own tests.
PROCESSES = /tests/(clients|e2e/(api|cluster|console|crash|disk|firsthour|floods|hostile|messages|pages|starts|upgrade)|security(/[a-z]+)?|mutants)$$
# Packages with concurrency: they or their tests start goroutines, use locks,
# serve requests or run a whole node. Other packages run under the race detector
# when these call them. guestbuild only waits for compilers, and tests/arch only
# reads files.
MEETING = ^[[:space:]]*go [a-zA-Z_(]|"sync"|"sync/atomic"|/x/sync|\.Parallel\(\)|AfterFunc\(|net/http|net\.Listen|"github.com/hostd/hostd/host"
RACE_PKGS = $$($(GO) list $(PKGS) | grep -Fx "$$(git grep -lE '$(MEETING)' -- '*.go' | xargs -n 1 dirname | sort -u | sed 's|^|github.com/hostd/hostd/|')" | grep -vE '$(PROCESSES)|/guestbuild(/|$$)|/tests/arch$$|/$(RACE_SLOW)$$')
# These packages test whole nodes and need ten minutes each under the race
# detector, so .ci/run runs a share of their tests.
RACE_SLOW = tests/(virtualtime|e2e/entities)
RACE_LIST = git grep -h '^func Test[A-Z]' -- tests/virtualtime tests/e2e/entities | sed -n 's|^func \(Test[A-Za-z0-9_]*\)(.*|\1|p' | grep -v '^TestMain$$' | sort -u | $(TAKE_SHARE)
# From suites that are lists of tests, .ci/run runs one of SHARES shares.
SHARES ?= 1
SHARE ?= 0
TAKE_SHARE = awk 'NR % $(SHARES) == $(SHARE) % $(SHARES)'
# Tests that call testkit.Long(t, "long"), each with its package.
LONG = git grep -B1 'testkit.Long(t, "long")' -- '*_test.go' | sed -n 's|^\(.*\)/[^/]*_test.go-func \(Test[A-Za-z0-9_]*\)(.*|./\1 \2|p' | $(TAKE_SHARE)

.DEFAULT_GOAL := help
.PHONY: help build cross release test race race-packages race-nodes check fmt fmt-check vet lint vuln generate generated console reference site deploy fuzz bench long sim kill powerloss nemesis sends chaos states changes failover flips mutants founding upgrade kubernetes pods

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## build bin/hostd
	CGO_ENABLED=0 $(GO) build -trimpath -tags grpcnotrace -o bin/hostd ./cmd/hostd

test: ## run all tests except the long suites
	$(GOTEST) $(PKGS)

race: race-packages race-nodes ## run the tests of concurrent code in short mode under the race detector

race-packages:
	$(GOTEST) -race -short -timeout 30m $(RACE_PKGS)

race-nodes:
	$(GOTEST) -race -short -timeout 40m -run "^($$($(RACE_LIST) | paste -sd '|' -))\$$" ./tests/virtualtime ./tests/e2e/entities

check: fmt-check vet lint generated race ## run every check that must pass before a commit

fmt: ## format the code
	gofmt -w $$(git ls-files '*.go')

fmt-check:
	@out=$$(gofmt -l $$(git ls-files '*.go')); if [ -n "$$out" ]; then echo "not formatted, run make fmt:"; echo "$$out"; exit 1; fi

vet: ## go vet
	$(GO) vet $(PKGS)

# S1016 would convert between message types only because their fields match today.
lint: ## staticcheck
	$(TOOL) staticcheck -checks inherit,-S1016 $(PKGS)

# The database of vulnerabilities, which govulncheck downloads parts of.
VULNERABILITIES ?= https://vuln.go.dev

vuln: ## look up known vulnerabilities of the code that hostd calls
	@if curl -sSf --max-time 20 -o /dev/null "$(VULNERABILITIES)/index/db.json"; then $(TOOL) govulncheck -db "$(VULNERABILITIES)" $(PKGS); \
	else echo "govulncheck: skipped, because its database $(VULNERABILITIES) cannot be reached"; fi

generate: ## generate api/gen from api/proto
	api/generate.sh

cross: ## check, build and vet the program for each system and processor, or for PAIRS (darwin/arm64)
	$(GO) run ./tests/ci/cross $(CROSS) $(PAIRS)

release: ## build the artefacts of release VERSION in dist, for PAIRS, signed with SIGN_KEY and PACKAGE_KEY
	cd deploy/release && $(GO) run . -root ../.. -out ../../dist -version "$(VERSION)" $(if $(PAIRS),-pairs "$(PAIRS)") $(if $(SIGN_KEY),-sign-key "$(abspath $(SIGN_KEY))") $(if $(PACKAGE_KEY),-package-key "$(abspath $(PACKAGE_KEY))") $(if $(DOWNLOADS),-downloads "$(DOWNLOADS)")

kubernetes: ## render the Helm chart to deploy/kubernetes, and list its values in docs/operating/kubernetes.md
	cd deploy/helm && $(GO) run .

pods: ## run the Helm chart's pods in network namespaces, in full; needs root
	cd deploy/helm && $(GOTEST) -run '^Test.*Pod' -count=1 -timeout 25m . -full -v

site: ## build the documentation as a static site in site
	cd deploy/site && $(GO) run . -root ../.. -out ../../site $(if $(VERSION),-version "$(VERSION)")

reference: ## generate docs/reference from the code
	$(GO) run ./tests/ci/reference

generated: ## fail if committed generated code is out of date
	api/generate.sh check
	$(CONSOLE) -check

# npm installs the console's libraries; the bundler is a Go program.
CONSOLE = cd host/console/web && npm ci --no-audit --no-fund --loglevel=error && npx tsc -p . && $(GO) run ../bundle

console: ## type-check the console and bundle it to host/console/dist
	$(CONSOLE)

deploy: ## generate the dashboards and alerts in deploy
	$(GO) run ./deploy/generate

fuzz: ## run each fuzz target FUZZTIME times (30000x), or for a time such as 1m
	@set -e; git grep '^func Fuzz' -- '*_test.go' | sed -n 's|^\(.*\)/[^/]*_test.go:func \(Fuzz[A-Za-z0-9_]*\)(.*|\1 \2|p' | $(TAKE_SHARE) | while read -r dir target; do \
		echo "fuzz $$dir $$target"; \
		$(GOTEST) -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) "./$$dir" </dev/null; \
	done

bench: ## run every benchmark for BENCHTIME (default 1s)
	$(GO) test -run '^$$' -bench . -benchmem -benchtime $(BENCHTIME) $(PKGS)

long: ## run the long tests that have no target of their own
	@list=$$($(LONG)); $(GOTEST) -run "^($$(echo "$$list" | cut -d ' ' -f 2 | paste -sd '|' -))\$$" -count=1 -timeout 40m $$(echo "$$list" | cut -d ' ' -f 1 | sort -u)

sim: ## run the seeded simulator for SEEDS seeds (default 300)
	$(GOTEST) -run '^TestSeeds$$' -count=1 -timeout 30m ./tests/sim -seeds $(SEEDS)

kill: ## kill a node under load CYCLES (200) times and check every acknowledgement
	$(GOTEST) -run '^TestKill' -count=1 -timeout 40m ./tests/e2e/crash -cycles $(CYCLES)

powerloss: ## cut a node's power under load CUTS times (30), and damage every file; needs root
	$(GOTEST) -run '^(TestPowerLoss|TestDamage)' -count=1 -timeout 20m ./tests/e2e/disk -cuts $(CUTS) $(DAMAGES)

nemesis: ## kill, freeze, partition, wipe and move nodes of a cluster FAULTS (24) and MOVES (500) times; partitions need root
	$(GOTEST) -run '$(NEMESIS)' -count=1 -timeout 60m ./tests/e2e/cluster -skip '^(TestChaos|TestStatesAreReplays)$$' -pause 0 -faults $(FAULTS) -moves $(MOVES) -freeze $(FREEZE) -kills 3 -v

sends: ## kill nodes and move shards FAULTS (24) times during SENDS (100000) sends and TRANSFERS (10000) transfers
	$(GOTEST) -run . -count=1 -timeout 60m ./tests/e2e/messages -sends $(or $(SENDS),100000) -transfers $(or $(TRANSFERS),10000) -faults $(FAULTS) -v

chaos: ## kill, freeze, partition and move nodes FAULTS (24) times while entities use every feature; partitions need root
	$(GOTEST) -run '^TestChaos$$' -count=1 -timeout 30m ./tests/e2e/cluster -chaos.faults $(FAULTS) -v

states: ## replay ENTITIES (10000) with EVENTS (200) each on every replica, SAMPLE (200) also with the interpreter
	$(GOTEST) -run '^TestStatesAreReplays$$' -count=1 -timeout 60m ./tests/e2e/cluster -states.entities $(or $(ENTITIES),10000) -states.events $(or $(EVENTS),200) -states.sample $(or $(SAMPLE),200) -v

changes: ## activate, abort and roll back modules CHANGES (500) times under load and kills
	$(GOTEST) -run '^TestManyModulesChangeUnderLoad$$' -count=1 -timeout 90m ./tests/e2e/cluster -changes $(CHANGES) -changes-time 80m -v

failover: ## print how a killed node of 256 shards affects callers, KILLS (10) times
	$(GOTEST) -run '^TestFailOver$$' -count=1 -timeout 30m ./tests/e2e/cluster -kills $(or $(KILLS),10) -failover-shards 256 -v

flips: ## flip bits in Badger's tables during compaction, on nodes of a cluster
	$(GOTEST) -run '^TestFlippedBitsDuringCompactionAreRepaired$$' -timeout 15m -count=1 ./tests/e2e/disk -v

# Many tests detect a planted fault by reaching their deadline, so more of them
# run at a time than there are processors.
mutants: ## plant each known fault and require a test to fail; PLANT=changed plants those whose code changed, and a tenth
	$(GOTEST) -run '^TestMutantsAreCaught$$' -timeout 60m -count=1 -parallel $$((2 * $$(getconf _NPROCESSORS_ONLN))) ./tests/mutants -plant $(or $(PLANT),all) -v

founding: ## wipe a bootstrap node while its peers are down, FOUNDINGS (5) times: it must not start a second cluster
	$(GOTEST) -run '^TestLeftoverBootstrapFlagIsIgnored$$' -timeout 10m -count=1 ./tests/e2e/starts -foundings $(or $(FOUNDINGS),5) -v

upgrade: ## upgrade clusters of the previous release, in both orders, and of the first one under load, downgrade nodes, and finalize the upgrade
	$(GOTEST) -run '^Test(Upgrade|FinalizeNeedsReachablePeerListeners)$$' -timeout 40m -count=1 ./tests/e2e/upgrade $(ORDERS) -v
