package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// source is one Go file of the repository.
type source struct {
	path      string // relative to the root, with slashes
	pkg       string // directory relative to the root
	name      string // package name
	test      bool
	generated bool

	imports []string // full import paths
	doc     string   // package comment
}

const root = "../.."

// sources parses every Go file that is tracked by git or not ignored, so that
// ignored build output is excluded. Outside a checkout it walks the directory.
func sources(t *testing.T) []source {
	t.Helper()
	var out []source
	for _, path := range paths(t) {
		if !strings.HasSuffix(path, ".go") || strings.Contains(path, "/testdata/") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(root, path))
		if os.IsNotExist(err) {
			continue // removed and not committed yet
		}
		if err != nil {
			t.Fatal(err)
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, text, parser.ImportsOnly|parser.ParseComments)
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		s := source{
			path: path, pkg: filepath.ToSlash(filepath.Dir(path)), name: f.Name.Name, test: strings.HasSuffix(path, "_test.go"),
			generated: ast.IsGenerated(f), doc: f.Doc.Text(),
		}
		for _, imp := range f.Imports {
			p, err := strconv.Unquote(imp.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			s.imports = append(s.imports, p)
		}
		out = append(out, s)
	}
	if len(out) < 20 {
		t.Fatalf("found %d Go files: this is not the repository", len(out))
	}
	return out
}

func paths(t *testing.T) []string {
	t.Helper()
	cmd := exec.Command("git", "ls-files", "--cached", "--others", "--exclude-standard")
	cmd.Dir = root
	if out, err := cmd.Output(); err == nil {
		return slices.Compact(slices.Sorted(strings.SplitSeq(strings.TrimSpace(string(out)), "\n")))
	}
	var all []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == ".git" || d.Name() == "node_modules") {
			return filepath.SkipDir
		}
		if !d.IsDir() {
			rel, err := filepath.Rel(root, path)
			if err != nil {
				return err
			}
			all = append(all, filepath.ToSlash(rel))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// local returns an import path relative to the repository, or the path of
// another module unchanged.
func local(imported string) (path string, own bool) {
	if imported == repository {
		return "", true
	}
	return strings.CutPrefix(imported, repository+"/")
}

func TestImportTable(t *testing.T) {
	for _, s := range sources(t) {
		for _, imported := range s.imports {
			to, own := local(imported)
			if reason := banned(s.pkg, to, s.test); own && reason != "" {
				t.Errorf("%s imports %s: %s", s.path, imported, reason)
			}
			if reason := notSole(s.pkg, imported); reason != "" {
				t.Errorf("%s imports %s, which another package alone may: %s", s.path, imported, reason)
			}
			if allow := notStandard(s.pkg, to, own); allow != nil && !s.test {
				t.Errorf("%s imports %s: only the standard library and %v may be imported here", s.path, imported, allow)
			}
		}
	}
}

// The product contains no test doubles: packages for tests lie below tests.
func TestProductHoldsNoTestDoubles(t *testing.T) {
	for _, s := range sources(t) {
		if s.test || under(s.pkg, "tests") || underAny(s.pkg, testingImporters) {
			continue
		}
		for _, imported := range s.imports {
			if testingLibrary(imported) {
				t.Errorf("%s imports %s, which is for tests: move it below tests/support", s.path, imported)
			}
		}
	}
}

// Planted faults are texts below tests/mutants. The product has no hook for
// them, and its own tests do not mention them.
func TestProductHoldsNoPlantedFaults(t *testing.T) {
	named := regexp.MustCompile(`(?i)mutant|planted`)
	for _, path := range paths(t) {
		if !underAny(path, []string{"abi", "api", "cmd", "guest-sdk", "host", "journal", "sharding"}) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(root, path))
		if os.IsNotExist(err) {
			continue // removed and not committed yet
		}
		if err != nil {
			t.Fatal(err)
		}
		if found := named.Find(text); found != nil {
			t.Errorf("%s says %q: faults that tests must find are texts in tests/mutants/catalog", path, found)
		}
	}
}

func TestTopLevelIsFixed(t *testing.T) {
	for _, path := range paths(t) {
		first, _, _ := strings.Cut(path, "/")
		if !strings.HasPrefix(first, ".") && !slices.Contains(topLevel, first) {
			t.Errorf("%s: nothing else may lie at the top level", path)
		}
	}
}

func TestPackagesHaveDocComments(t *testing.T) {
	doc, generated := map[string]string{}, map[string]bool{}
	count := map[string]int{}
	for _, s := range sources(t) {
		if s.test {
			continue
		}
		doc[s.pkg] += s.doc
		generated[s.pkg] = generated[s.pkg] || s.generated
		if s.doc != "" && !s.generated {
			count[s.pkg]++
		}
	}
	for pkg, text := range doc {
		if generated[pkg] {
			continue
		}
		if text == "" {
			t.Errorf("package %s has no comment: its duty in a sentence, what it never does, who owns its goroutines", pkg)
		}
		if count[pkg] > 1 {
			t.Errorf("package %s has %d package comments", pkg, count[pkg])
		}
	}
}

func TestNoBannedNames(t *testing.T) {
	names := []string{"util", "utils", "common", "helper", "helpers", "manager", "misc"}
	for _, s := range sources(t) {
		if slices.Contains(names, s.name) || slices.Contains(names, filepath.Base(s.pkg)) {
			t.Errorf("%s: a package is named for what it is, not %s", s.path, s.name)
		}
	}
}

// The tests above would prove nothing if their rules never matched.
func TestImportRulesMatch(t *testing.T) {
	for _, tt := range []struct {
		pkg, imported string
		banned        bool
	}{
		{"journal/wal", "abi", true},
		{"journal/wal", "host/config", true},
		{"journalist", "abi", false},
		{"sharding/router", "journal", true},
		{"sharding/router", "sharding", false},
		{"abi", "sharding", true},
		{"abi/abitest", "host/guest", false},
		{"host/guest/wasm", "host/guest", true},
		{"host/guest", "host/guest/wasm", false},
		{"host/edge", "host", true},
		{"host/edge", "host/entity", true},
		{"host/edge", "host/request", false},
		{"host", "host/edge", false},
		{"host/authn", "host/certs", true},
		{"host/authn", "host/files", false},
		{"host/datadir", "journal/store", true},
		{"host/offline", "journal/store", false},
		{"host/offline", "host/entity", true},
		{"tests/e2e/cluster", "host", false},
		{"tests/e2e/cluster", "cmd/hostd", true},
		{"host", "tests/support/testkit", true},
		{"cmd/hostd", "host", false},
		{"cmd/hostd", "journal/wal", true},
		{"journal/wal", "journal/disk/disktest", true},
		{"tests/sim", "journal/disk/disktest", false},
	} {
		if got := banned(tt.pkg, tt.imported, false); (got != "") != tt.banned {
			t.Errorf("%s imports %s: got %q, want banned=%v", tt.pkg, tt.imported, got, tt.banned)
		}
	}
	if banned("host", "tests/support/testkit", true) != "" || banned("journal/wal", "abi", true) == "" {
		t.Error("test files are judged wrongly")
	}
	if banned("journal/wal", "journal/disk/disktest", true) != "" || !testingLibrary("testing/synctest") || testingLibrary("testingx") {
		t.Error("the rules of doubles do not fire, or fire wrongly")
	}
	if notSole("host", "go.etcd.io/raft/v3/raftpb") == "" || notSole("journal/raftgroup", "go.etcd.io/raft/v3") != "" {
		t.Error("the rule of sole importers does not fire, or fires wrongly")
	}
	if notSole("host/guest/wasm", "github.com/tetratelabs/wazero/api") == "" || notSole("host/guest", "github.com/tetratelabs/wazero") != "" {
		t.Error("the rule of the runtime's importer does not fire, or fires wrongly")
	}
	if notStandard("abi", "golang.org/x/sync", false) == nil || notStandard("abi", "encoding/json", false) != nil ||
		notStandard("examples/wasm/counter", "guest-sdk/go", true) != nil || notStandard("guest-sdk/go", "host", true) == nil {
		t.Error("the rule of the standard library does not fire, or fires wrongly")
	}
	if to, own := local(repository + "/host/edge"); to != "host/edge" || !own {
		t.Errorf("local: %q %v", to, own)
	}
	if _, own := local(repository + "x"); own {
		t.Error("a module with a longer name is taken for this one")
	}
	for _, b := range bans {
		if b.reason == "" {
			t.Errorf("a rule without a reason: %+v", b)
		}
	}
}
