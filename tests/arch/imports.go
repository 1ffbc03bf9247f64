// Package arch describes the architecture of the repository as data, and tests
// that the code conforms to that description: which packages may import which,
// which libraries have a sole importer, what lies at the top level, how many
// names a package exports, and that every package has a doc comment. It never
// runs the code that it reads and starts no goroutine.
package arch

import (
	"slices"
	"strings"
)

// A ban forbids packages under from to import packages under to. Paths are
// relative to the root of the repository.
type ban struct {
	from   []string
	to     []string
	except []string // packages under from that are exempt
	but    []string // packages under to that may be imported nevertheless
	exact  bool     // the rule covers the packages at to themselves, not the packages below them
	tests  bool     // test files are exempt
	reason string
}

// repository is the module path.
const repository = "github.com/hostd/hostd"

// bans is the import table. A path includes the packages below it.
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
		but:    []string{"abi/jsontext"},
		tests:  true,
		reason: "clients use the public API without the server's packages; how JSON is read is the same everywhere",
	},
	{
		from:   []string{"host/config", "host/telemetry"},
		to:     []string{"journal", "abi", "api", "host/guest", "host/entity", "host/edge"},
		reason: "what every part is configured with must not depend on any part",
	},
	{
		from:   []string{"host/certs"},
		to:     []string{"journal", "sharding", "abi", "api", "host"},
		but:    []string{"host/files"},
		reason: "certificates are read and issued without knowing what they protect: the command line issues them without a node",
	},
	{
		from:   []string{"host/datadir"},
		to:     []string{"abi", "api", "journal/wal", "journal/store", "journal/statefile", "journal/raftgroup", "journal/eventlog", "host/guest", "host/entity", "host/peer", "host/cluster", "host/edge"},
		reason: "what works on a stopped node's directory shares it with the node, and must not depend on a part that runs",
	},
	{
		from:   []string{"host/offline"},
		to:     []string{"abi", "api", "host/config", "host/telemetry", "host/network", "host/entity", "host/router", "host/deliver", "host/forward", "host/peer", "host/cluster", "host/backup", "host/edge"},
		reason: "damage is mended, and what is left read, without a part that runs",
	},
	{
		from:   []string{"host/modules"},
		to:     []string{"journal/wal", "journal/store", "journal/eventlog", "journal/raftgroup", "host/router", "host/forward", "host/deliver", "host/backup", "host/edge", "host/moduleapi"},
		tests:  true,
		reason: "modules are brought to nodes without knowing what is decided by them",
	},
	{
		from:   []string{"host/moduleapi"},
		to:     []string{"journal/wal", "journal/disk", "host/config", "host/guest", "host/datadir", "host/forward", "host/deliver", "host/network"},
		reason: "calls are answered from the parts of a node, however they were opened",
	},
	{
		from:   []string{"host/replay"},
		to:     []string{"api", "journal/wal", "journal/store", "journal/raftgroup", "host/entity", "host/router", "host/forward", "host/deliver", "host/peer", "host/cluster", "host/edge", "host/moduleapi"},
		tests:  true,
		reason: "a past state is computed from what is committed, beside whatever runs",
	},
	{
		from:   []string{"host/cluster"},
		to:     []string{"host/clusterapi", "host/edge", "host/moduleapi", "host/modules"},
		reason: "nodes form a cluster without knowing which modules run on it and how operators ask",
	},
	{
		from:   []string{"host/clusterapi", "host/entityapi", "host/moduleapi"},
		to:     []string{"host/edge", "host/services"},
		exact:  true,
		reason: "a service does not know the server that mounts it",
	},
	{
		from:   []string{"host/backup"},
		to:     []string{"journal/wal", "journal/store", "journal/raftgroup", "host/guest", "host/entity", "host/router", "host/forward", "host/deliver", "host/edge", "host/moduleapi", "host/services"},
		but:    []string{"host/edge/admission"},
		reason: "a backup is taken of what is committed, and brought in through the logs, whatever runs beside it",
	},
	{
		from:   []string{"host/guest"},
		to:     []string{"journal/wal", "journal/store", "journal/eventlog", "journal/raftgroup", "host/entity", "host/edge", "api"},
		reason: "running a guest does not need to know what its results are for",
	},
	{
		from:   []string{"host/files"},
		to:     []string{"abi", "api", "journal", "sharding", "host"},
		reason: "a file is read without knowing what it holds",
	},
	{
		from:   []string{"host/authn"},
		to:     []string{"abi", "api", "journal", "sharding", "host"},
		but:    []string{"host/files", "host/principal", "sharding/access"},
		reason: "who calls is known without knowing what is asked for, and of whom",
	},
	{
		from:   []string{"host/principal"},
		to:     []string{"abi", "api", "journal", "sharding", "host"},
		reason: "who calls is said alike to nodes, guests and the journal",
	},
	{
		from:   []string{"host/signing"},
		to:     []string{"abi", "api", "journal", "sharding", "host"},
		but:    []string{"host/files"},
		reason: "who has signed a module is known without knowing where it is kept and what comes of it",
	},
	{
		from:   []string{"host/audit"},
		to:     []string{"abi", "journal", "sharding", "host/edge", "host/config", "host/guest", "host/entity"},
		reason: "account is kept of calls, whoever answers them",
	},
	{
		from:   []string{"host/authz"},
		to:     []string{"abi", "api", "journal", "sharding", "host"},
		but:    []string{"api/gen/hostd/auth", "host/principal", "sharding/access"},
		reason: "what callers may do is decided without knowing how it is asked for, and where roles are kept",
	},
	{
		from:   []string{"host/procedure"},
		to:     []string{"abi", "journal", "sharding", "host"},
		but:    []string{"host/authz"},
		reason: "what a procedure needs is the same whoever serves it and whoever mounts it",
	},
	{
		from:   []string{"sharding/access"},
		to:     []string{"sharding"},
		reason: "what a role is does not depend on what else a cluster keeps",
	},
	{
		from:   []string{"host/request"},
		to:     []string{"abi", "api", "host", "journal/wal", "journal/disk", "journal/statefile", "journal/store", "journal/raftgroup", "journal/eventlog"},
		but:    []string{"host/principal"},
		reason: "what is said of a request is the same however it is carried and whoever answers it",
	},
	{
		from:   []string{"host/guest/wasm"},
		to:     []string{"host"},
		reason: "a module is read, admitted and rewritten without anything that runs it: the command line does so",
	},
	{
		from:   []string{"host/entity"},
		to:     []string{"host/edge", "host/entityapi", "api", "journal/raftgroup", "journal/wal", "journal/store"},
		reason: "executors decide; they are fed and their decisions are carried by others",
	},
	{
		from:   []string{"host/entityapi"},
		to:     []string{"host/guest", "journal/raftgroup", "journal/wal", "api/client"},
		reason: "the API asks executors and the journal, and reaches other nodes through the leader proxy",
	},
	{
		from:   []string{"host/router"},
		to:     []string{"host/entity", "host/edge", "host/forward", "host/peer", "api", "journal/raftgroup", "journal/eventlog"},
		reason: "which node a request goes to is decided without knowing how it gets there",
	},
	{
		from:   []string{"host/deliver"},
		to:     []string{"host/entity", "host/router", "host/edge", "host/forward", "host/peer", "api", "journal/raftgroup", "journal/eventlog", "journal/store"},
		reason: "sends are taken to wherever requests go, and from wherever they are kept",
	},
	{
		from:   []string{"host/forward"},
		to:     []string{"host/entity", "journal/raftgroup", "journal/eventlog", "journal/store", "api/client"},
		reason: "requests are carried between whatever gives and takes them",
	},
	{
		from:   []string{"host/forward"},
		to:     []string{"host/edge"},
		tests:  true,
		reason: "what nodes say to each other does not depend on what callers are told",
	},
	{
		from:   []string{"host/edge"},
		to:     []string{"host/entity", "host/guest", "host/modules", "host/cluster", "host/backup", "host/replay", "host/router", "host/peer", "host/clusterapi", "host/entityapi", "host/moduleapi", "host/services", "journal", "api/client"},
		tests:  true,
		reason: "the edge mounts services that it is given: it knows who calls and what a call may take, and no subsystem",
	},
	{
		from:   []string{"host/openapi"},
		to:     []string{"api", "journal", "sharding", "host"},
		reason: "types are described from their manifests alone, by nodes and by the command line",
	},
	{
		from:   []string{"host/status", "host/edge/codec"},
		to:     []string{"host/edge", "host/edge/admission", "host/entityapi", "host/edge/leaderproxy"},
		exact:  true,
		reason: "an error and a value are told alike by whatever part of the API meets them",
	},
	{
		from:   []string{"host/edge/leaderproxy", "host/edge/admission", "host/edge/authorize", "host/edge/quota"},
		to:     []string{"host/edge", "host/entityapi", "host/entityapi/subscription"},
		exact:  true,
		reason: "whether a call is let in, and which node answers it, is decided without knowing what it asks",
	},
	{
		from:   []string{"host/entityapi/subscription"},
		to:     []string{"host/edge", "host/entityapi"},
		exact:  true,
		reason: "events are streamed without the service that mounts the calls",
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
		from:   []string{"journal/raftgroup/snapdir"},
		to:     []string{"journal/raftgroup", "journal/wal"},
		reason: "files have names, bytes and checksums; what raft wants of them is decided above",
	},
	{
		from:   []string{"journal/raftgroup/raftlog"},
		to:     []string{"journal/raftgroup/recovery", "journal/raftgroup/offline"},
		reason: "a log is the same whoever reads or fills it",
	},
	{
		from:   []string{"journal/raftgroup/raftlog", "journal/raftgroup/recovery", "journal/raftgroup/offline", "journal/raftgroup/wire"},
		to:     []string{"journal/raftgroup"},
		exact:  true,
		reason: "what the log of a stopped node holds is read and changed without the loop that runs groups",
	},
	{
		from:   []string{"journal/eventlog"},
		to:     []string{"journal/raftgroup", "journal/wal"},
		reason: "the state machine is the same however its entries were ordered",
	},
	{
		from:   []string{"journal/eventlog/kv", "journal/eventlog/rows", "journal/eventlog/outbox", "journal/eventlog/timers", "journal/eventlog/history", "journal/eventlog/verdict"},
		to:     []string{"journal/statefile", "journal/archive"},
		reason: "what is known of rows, of messages, timers and records is the same whether a shard's state comes from its log or from another node",
	},
	{
		from:   []string{"host/network"},
		to:     []string{"sharding", "journal", "abi", "api", "host/config", "host/telemetry", "host/edge", "host/peer", "host/cluster"},
		reason: "connections carry whatever is put on them",
	},
	{
		from:   []string{"host/peer"},
		to:     []string{"journal", "abi", "host/guest", "host/entity", "host/edge", "host/cluster"},
		reason: "peers carry bytes and calls; what they mean is their users' business",
	},
	{
		from:   []string{"cmd"},
		to:     []string{"journal", "host/entity", "host/edge"},
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
		from:   []string{""},
		to:     []string{"journal/disk/disktest", "guest-sdk/go/hostdtest"},
		except: []string{"tests", "journal/disk/disktest", "guest-sdk/go/hostdtest"},
		tests:  true,
		reason: "a double stands in for something in tests alone",
	},
	{
		from:   []string{"sharding", "journal", "host", "abi", "guest-sdk", "api"},
		to:     []string{"host"},
		exact:  true,
		reason: "the composition root is imported by programs and tests only",
	},
}

// soleImporters lists libraries that only the named packages may import, tests
// included.
var soleImporters = []struct {
	library   string
	importers []string
	exact     bool // packages below the importers may not import it
	reason    string
}{
	{library: "github.com/dgraph-io/badger", importers: []string{"journal/store"}, reason: "the store's layout and its checks are one place"},
	{library: "go.etcd.io/raft", importers: []string{"journal/raftgroup", "tests/sim"}, reason: "consensus is driven in one place, and by the simulator"},
	{library: "github.com/hashicorp/memberlist", importers: []string{"sharding/membership"}, reason: "gossip is a hint that one package reads"},
	{library: "github.com/tetratelabs/wazero", importers: []string{"host/guest"}, exact: true, reason: "guests run in one place, behind its limits"},
	{library: "go.yaml.in/yaml/v3", importers: []string{"host/config", "cmd/hostd/internal/cases", "cmd/hostd/internal/cli", "deploy/generate", "deploy/helm"}, reason: "there is one configuration file, one form of cases, one place of output formats, Prometheus' own, and the values of the chart"},
	{library: "github.com/itchyny/gojq", importers: []string{"cmd/hostd/internal/cli"}, reason: "there is one place of output formats"},
	{library: "github.com/coreos/go-oidc", importers: []string{"host/authn"}, reason: "signed tokens are checked in one place"},
	{library: "github.com/go-jose/go-jose", importers: []string{"host/authn"}, reason: "signed tokens are checked in one place"},
	{library: "github.com/santhosh-tekuri/jsonschema", importers: []string{"host/guest", "tests/e2e/api"}, reason: "schemas are checked in one place, and payloads by a walk of our own; a test compares what a node describes with what it answers"},
	{library: "github.com/spf13/cobra", importers: []string{"cmd/hostd", "deploy/release"}, reason: "there is one command line, and manual pages of it"},
}

// testingImporters are the packages in product folders that may import the
// standard library's packages for tests. They are test doubles for users, who
// expect them in these folders. All other test doubles are below tests/support.
var testingImporters = []string{"guest-sdk/go/hostdtest"}

// standardOnly lists packages that may import only the standard library and the
// named packages, so that they can be used anywhere.
var standardOnly = []struct {
	pkg   string
	allow []string
}{
	{"abi", []string{"abi"}},
	{"sharding", []string{"sharding"}},
	{"guest-sdk", []string{"abi", "guest-sdk"}},
	{"examples", []string{"abi", "guest-sdk", "examples"}},
}

// standardOnlyExcept lists packages below the packages of standardOnly that may
// import other libraries.
var standardOnlyExcept = []string{"abi/abitest", "sharding/membership"}

// topLevel lists the files and folders that are allowed at the root of the
// repository. Names that begin with a dot are allowed, too.
var topLevel = []string{
	"go.mod", "go.sum", "tools.mod", "tools.sum", "Makefile",
	"README.md", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE",
	"sources.go", // embeds the SDK and the contract, which no other folder contains both
	"cmd", "host", "abi", "sharding", "journal", "guest-sdk", "examples", "api", "tests", "docs", "deploy",
}

// under reports whether pkg is path or lies below it. An empty path includes
// everything.
func under(pkg, path string) bool {
	return path == "" || pkg == path || strings.HasPrefix(pkg, path+"/")
}

// banned returns the reason why a package may not import another package of
// this repository, or "" if it may. test is set if the importer is a test file.
func banned(pkg, imported string, test bool) string {
	for _, b := range bans {
		if b.tests && test || !underAny(pkg, b.from) || underAny(pkg, b.except) || underAny(imported, b.but) || pkg == imported {
			continue
		}
		if b.exact && slices.Contains(b.to, imported) || !b.exact && underAny(imported, b.to) {
			return b.reason
		}
	}
	return ""
}

// notSole returns the reason why a package may not import a library, or "" if
// it may.
func notSole(pkg, imported string) string {
	for _, sole := range soleImporters {
		allowed := underAny(pkg, sole.importers)
		if sole.exact {
			allowed = slices.Contains(sole.importers, pkg)
		}
		if under(imported, sole.library) && !allowed {
			return sole.reason
		}
	}
	return ""
}

// testingLibrary reports whether an import is one of the standard library's
// packages for tests.
func testingLibrary(imported string) bool {
	return underAny(imported, []string{"testing", "net/http/httptest"})
}

// notStandard returns the rule that forbids a package to import another
// package, or nil if there is none.
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
