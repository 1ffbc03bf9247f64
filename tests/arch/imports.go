// Package arch is the architecture of the repository as data, and the tests
// that hold the code to it: who may import whom, which library has which one
// importer, what lies at the top level, how long a file may be, and that every
// package says what it is for. It never runs the code that it reads and starts
// no goroutine.
package arch

import (
	"slices"
	"strings"
)

// A ban forbids the packages under from to import what lies under to. Paths are relative to the root of the repository.
type ban struct {
	from   []string
	to     []string
	except []string // packages under from that may
	exact  bool     // to means those packages, not what lies under them
	tests  bool     // test files may
	reason string
}

// repository is the module path.
const repository = "github.com/hostd/hostd"

// bans is the import table. A path covers what lies under it.
var bans = []ban{
	{
		from:   []string{"sharding"},
		to:     []string{"journal", "abi", "host", "api", "cmd", "guest-sdk", "examples", "tests"},
		reason: "placement is decided without knowing what is placed or how it is stored",
	},
	{
		from:   []string{"journal"},
		to:     []string{"abi", "host", "api", "cmd", "guest-sdk", "examples", "tests"},
		reason: "the journal carries bytes: it must outlive every guest contract and every API",
	},
	{
		from:   []string{"abi"},
		to:     []string{"sharding", "journal", "host", "api", "cmd", "guest-sdk", "examples", "tests"},
		except: []string{"abi/abitest"},
		reason: "the guest contract is shared by the host and by guests in other languages: it depends on nothing",
	},
	{
		from:   []string{"guest-sdk", "examples"},
		to:     []string{"sharding", "journal", "host", "api", "cmd", "tests"},
		reason: "guests are built from the contract and the SDK alone, as a user's are",
	},
	{
		from:   []string{"api"},
		to:     []string{"sharding", "journal", "abi", "host", "cmd", "guest-sdk", "examples", "tests"},
		tests:  true,
		reason: "clients use the public API without the server's packages",
	},
	{
		from:   []string{"host/config", "host/telemetry"},
		to:     []string{"journal", "abi", "api", "host/engine", "host/entity", "host/region", "host/registry", "host/rpc"},
		reason: "what every part is configured with must not depend on any part",
	},
	{
		from:   []string{"host/engine", "host/registry"},
		to:     []string{"journal/wal", "journal/store", "journal/eventlog", "journal/raftgroup", "host/entity", "host/region", "host/rpc", "api"},
		reason: "running a guest does not need to know what its results are for",
	},
	{
		from:   []string{"host/entity"},
		to:     []string{"host/region", "host/rpc", "api", "journal/raftgroup", "journal/wal", "journal/store"},
		reason: "lanes decide; they are fed and their decisions are carried by others",
	},
	{
		from:   []string{"host/region"},
		to:     []string{"host/rpc", "api", "journal/wal", "journal/store"},
		reason: "a region serves any way of asking",
	},
	{
		from:   []string{"host/router"},
		to:     []string{"host/region", "host/rpc", "host/forward", "host/peer", "api", "journal/raftgroup", "journal/eventlog"},
		reason: "which node a request goes to is decided without knowing how it gets there",
	},
	{
		from:   []string{"host/deliver"},
		to:     []string{"host/region", "host/router", "host/rpc", "host/forward", "host/peer", "api", "journal/raftgroup", "journal/eventlog", "journal/store"},
		reason: "sends are taken to wherever requests go, and from wherever they are kept",
	},
	{
		from:   []string{"host/forward"},
		to:     []string{"host/region", "journal/raftgroup", "journal/eventlog", "journal/store", "api/client"},
		reason: "requests are carried between whatever gives and takes them",
	},
	{
		from:   []string{"host/rpc"},
		to:     []string{"host/region", "host/engine", "journal/raftgroup", "journal/wal", "journal/store", "journal/eventlog", "api/client"},
		reason: "handlers reach the runtime through their own interfaces",
	},
	{
		from:   []string{"journal/wal", "journal/disk"},
		to:     []string{"journal/raftgroup", "journal/eventlog", "journal/store", "sharding"},
		reason: "the log keeps opaque records",
	},
	{
		from:   []string{"journal/store"},
		to:     []string{"journal/raftgroup", "journal/eventlog", "journal/wal"},
		reason: "the store keeps what the event log gives it",
	},
	{
		from:   []string{"journal/statefile"},
		to:     []string{"journal/raftgroup", "journal/eventlog", "journal/store", "journal/wal", "journal/disk"},
		reason: "a stream of pairs is the same whatever made it and wherever it lies",
	},
	{
		from:   []string{"journal/raftgroup"},
		to:     []string{"journal/store", "journal/eventlog"},
		reason: "consensus orders bytes; the state machine is an interface",
	},
	{
		from:   []string{"journal/eventlog"},
		to:     []string{"journal/raftgroup", "journal/wal"},
		reason: "the state machine is the same however its entries were ordered",
	},
	{
		from:   []string{"host/network"},
		to:     []string{"sharding", "journal", "abi", "api", "host/config", "host/telemetry", "host/rpc", "host/peer", "host/cluster"},
		reason: "connections carry whatever is put on them",
	},
	{
		from:   []string{"host/peer"},
		to:     []string{"journal", "abi", "host/engine", "host/registry", "host/entity", "host/region", "host/rpc", "host/cluster"},
		reason: "peers carry bytes and calls; what they mean is their users' business",
	},
	{
		from:   []string{"cmd"},
		to:     []string{"journal", "host/entity", "host/region", "host/rpc", "host/registry"},
		reason: "the command line composes a node through host and talks to one through the API",
	},
	{
		from:   []string{""},
		to:     []string{"cmd"},
		except: []string{"cmd"},
		reason: "a program is not a library",
	},
	{
		from:   []string{"cmd", "host", "abi", "sharding", "journal", "guest-sdk", "examples", "api"},
		to:     []string{"tests"},
		tests:  true,
		reason: "what ships does not depend on its tests",
	},
	{
		from:   []string{"sharding", "journal", "host", "abi", "guest-sdk", "api"},
		to:     []string{"host"},
		exact:  true,
		reason: "the composition root is imported by programs and tests only",
	},
}

// soleImporters names the packages that alone may import a library, tests
// included.
var soleImporters = []struct {
	library   string
	importers []string
	reason    string
}{
	{"github.com/dgraph-io/badger", []string{"journal/store"}, "the store's layout and its checks are one place"},
	{"go.etcd.io/raft", []string{"journal/raftgroup", "tests/sim"}, "consensus is driven in one place, and by the simulator"},
	{"github.com/hashicorp/memberlist", []string{"sharding/membership"}, "gossip is a hint that one package reads"},
	{"github.com/tetratelabs/wazero", []string{"host/engine"}, "guests run in one place, behind its limits"},
	{"gopkg.in/yaml.v3", []string{"host/config"}, "there is one configuration file"},
	{"github.com/spf13/cobra", []string{"cmd/hostd"}, "there is one command line"},
}

// standardOnly lists packages that import the standard library and the named
// packages only, so that they can be used anywhere.
var standardOnly = []struct {
	pkg   string
	allow []string
}{
	{"abi", []string{"abi"}},
	{"sharding", []string{"sharding"}},
	{"guest-sdk", []string{"abi", "guest-sdk"}},
	{"examples", []string{"abi", "guest-sdk", "examples"}},
}

// standardOnlyExcept are packages below those, with libraries of their own.
var standardOnlyExcept = []string{"abi/abitest", "sharding/membership"}

// topLevel is everything that may lie at the root of the repository; names
// that begin with a dot may too. OPERATIONS.md and COMPARISON.md lie there
// because people look for them before they know the code.
var topLevel = []string{
	"go.mod", "go.sum", "tools.mod", "tools.sum", "Makefile", "dev-cluster.sh",
	"README.md", "ARCHITECTURE.md", "RATIONALE.md", "CHANGELOG.md", "CONTRIBUTING.md", "BENCHMARKS.md", "RELIABILITY.md", "OPERATIONS.md", "COMPARISON.md", "LICENSE",
	"cmd", "host", "abi", "sharding", "journal", "guest-sdk", "examples", "api", "tests",
}

// maxFileLines bounds Go files, tests included; generated ones are excepted.
const maxFileLines = 500

// under reports whether pkg is path or lies below it; "" covers everything.
func under(pkg, path string) bool {
	return path == "" || pkg == path || strings.HasPrefix(pkg, path+"/")
}

// banned returns why a package may not import one of this repository; "" when
// it may. test says that a test file does.
func banned(pkg, imported string, test bool) string {
	for _, b := range bans {
		if b.tests && test || !underAny(pkg, b.from) || underAny(pkg, b.except) || pkg == imported {
			continue
		}
		if b.exact && slices.Contains(b.to, imported) || !b.exact && underAny(imported, b.to) {
			return b.reason
		}
	}
	return ""
}

// notSole returns why a package may not import a library; "" when it may.
func notSole(pkg, imported string) string {
	for _, sole := range soleImporters {
		if under(imported, sole.library) && !underAny(pkg, sole.importers) {
			return sole.reason
		}
	}
	return ""
}

// notStandard returns the rule by which a package may not import another; nil
// when it may.
func notStandard(pkg, imported string, own bool) []string {
	for _, rule := range standardOnly {
		if !under(pkg, rule.pkg) || underAny(pkg, standardOnlyExcept) {
			continue
		}
		first, _, _ := strings.Cut(imported, "/")
		if own && !underAny(imported, rule.allow) || !own && strings.Contains(first, ".") {
			return rule.allow
		}
	}
	return nil
}

func underAny(pkg string, paths []string) bool {
	for _, p := range paths {
		if under(pkg, p) {
			return true
		}
	}
	return false
}
