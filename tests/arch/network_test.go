package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// networkOpeners lists the functions and types that create listeners and
// connections, by import path.
var networkOpeners = map[string][]string{
	"net": {
		"Dial", "DialTimeout", "DialTCP", "DialUDP", "DialUnix", "DialIP", "Dialer",
		"Listen", "ListenTCP", "ListenUDP", "ListenUnix", "ListenIP", "ListenPacket", "ListenMulticastUDP", "ListenConfig", "FileListener",
	},
	"crypto/tls":             {"Dial", "DialWithDialer", "Dialer", "Listen"},
	"net/http":               {"Transport", "ListenAndServe", "ListenAndServeTLS"},
	"golang.org/x/net/http2": {"Transport"},
}

// networkUsers are the packages that must reach the network through an
// interface, so that whole clusters can run over an in-memory network.
var networkUsers = []string{"host", "sharding", "cmd"}

// networkExcept are the files that may create connections directly, with the
// reasons.
var networkExcept = map[string]string{
	"host/network":                                "the place where listeners and dialers are made",
	"cmd/hostd/internal/bench/child.go":           "the echo that figures are compared with is a process of its own, no node",
	"cmd/hostd/internal/systemd/notify.go":        "a socket of this machine's service manager, no node",
	"cmd/hostd/internal/cli/remote.go":            "the command line asks whether a port of another process answers",
	"cmd/hostd/internal/cli/tls.go":               "the command line calls other processes, as any client does",
	"cmd/hostd/internal/devcluster/hold_other.go": "the command line looks whether a port is free before it starts nodes on it",
}

// opened lists the openers that a file uses directly, such as "net.Listen".
func opened(t *testing.T, name string, text any) []string {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), name, text, 0)
	if err != nil {
		t.Fatal(err)
	}
	paths := map[string]string{} // import paths by their name in the file
	for _, imp := range f.Imports {
		path, err := strconv.Unquote(imp.Path.Value)
		if err != nil {
			t.Fatal(err)
		}
		local := path[strings.LastIndex(path, "/")+1:]
		if imp.Name != nil {
			local = imp.Name.Name
		}
		paths[local] = path
	}
	var out []string
	check := func(e ast.Expr) {
		sel, ok := e.(*ast.SelectorExpr)
		if !ok {
			return
		}
		if pkg, ok := sel.X.(*ast.Ident); ok && slices.Contains(networkOpeners[paths[pkg.Name]], sel.Sel.Name) {
			out = append(out, pkg.Name+"."+sel.Sel.Name)
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			check(n.Fun)
			if fn, ok := n.Fun.(*ast.Ident); ok && fn.Name == "new" && len(n.Args) == 1 {
				check(n.Args[0])
			}
		case *ast.CompositeLit:
			check(n.Type)
		case *ast.ValueSpec: // var d net.Dialer
			check(n.Type)
		}
		return true
	})
	return out
}

func TestOnlyNetworkPackagesOpenConnections(t *testing.T) {
	used := map[string]bool{}
	for _, s := range sources(t) {
		if s.test || !underAny(s.pkg, networkUsers) {
			continue
		}
		found := opened(t, filepath.Join(root, s.path), nil)
		if len(found) == 0 {
			continue
		}
		excepted := ""
		for path := range networkExcept {
			if s.path == path || under(s.pkg, path) {
				excepted = path
			}
		}
		if used[excepted] = true; excepted == "" {
			t.Errorf("%s opens the network by itself with %v: package host/network does that", s.path, found)
		}
	}
	for path, reason := range networkExcept {
		if !used[path] || reason == "" {
			t.Errorf("the exception of %s has no use, or no reason", path)
		}
	}
}

func TestNetworkRuleMatches(t *testing.T) {
	for _, c := range []struct {
		code string
		want string
	}{
		{`import "net"; func f() { net.Listen("tcp", "") }`, "net.Listen"},
		{`import n "net"; func f() { n.Dial("tcp", "") }`, "n.Dial"},
		{`import "net"; var d = net.Dialer{}`, "net.Dialer"},
		{`import "net"; var d net.Dialer`, "net.Dialer"},
		{`import "net"; var d = new(net.Dialer)`, "net.Dialer"},
		{`import "net/http"; var t = &http.Transport{}`, "http.Transport"},
		{`import "net/http"; type c struct { t *http.Transport }`, ""},
		{`import "net"; func f(l net.Listener) { l.Accept() }`, ""},
		{`import "example.com/net"; func f() { net.Listen() }`, ""},
	} {
		if got := strings.Join(opened(t, "x.go", "package x; "+c.code), " "); got != c.want {
			t.Errorf("%s: %q, want %q", c.code, got, c.want)
		}
	}
	if _, err := os.Stat(filepath.Join(root, "host/network")); err != nil {
		t.Error(err)
	}
}
