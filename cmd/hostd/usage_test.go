package main

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The nouns and verbs are public: scripts are written against them.
func TestEveryCommandExists(t *testing.T) {
	for _, path := range []string{
		"version", "dev", "demo", "serve", "bench", "verify", "recover",
		"module push", "module ls", "module describe", "module activate", "module rollback", "module verify", "module check",
		"entity send", "entity query", "entity events", "entity get", "entity state", "entity ls", "entity hot", "entity tail",
		"entity deadletters ls", "entity deadletters retry", "entity deadletters discard",
		"cluster status", "cluster watch", "cluster rebalance", "shard ls", "shard move", "node ls", "node drain", "node resume", "node leave", "node down",
		"setting get", "setting put", "setting ls", "setting watch", "journal export", "journal import", "journal verify",
	} {
		args := strings.Fields(path)
		c, rest, err := newRoot(stdio{}).Find(args)
		if err != nil || len(rest) != 0 || c.CommandPath() != "hostd "+path {
			t.Errorf("hostd %s: found %v, %v, %v", path, c.CommandPath(), rest, err)
			continue
		}
		if got := hostd(t, append(args, "--help")...); got.code != exitDone || !strings.Contains(got.out, "hostd "+path) {
			t.Errorf("hostd %s --help: %+v", path, got)
		}
	}
}

func TestListingsHaveJSON(t *testing.T) {
	for _, path := range []string{"module ls", "entity ls", "entity events", "entity get", "cluster status", "cluster watch", "shard ls", "node ls",
		"setting get", "setting ls", "setting watch", "bench", "version", "journal export", "journal import", "journal verify", "entity hot", "entity deadletters ls"} {
		c, _, _ := newRoot(stdio{}).Find(strings.Fields(path))
		if f := c.Flags().ShorthandLookup("o"); f == nil || f.Name != "output" {
			t.Errorf("hostd %s has no flag -o", path)
		}
	}
}

func TestExitCodes(t *testing.T) {
	// A port that nothing listens on.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nowhere := l.Addr().String()
	l.Close()
	text := filepath.Join(t.TempDir(), "text.wasm")
	if err := os.WriteFile(text, []byte("not a module"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		args string
		code int
		says string
	}{
		{"", exitUsage, "hostd needs a command"},
		{"frob", exitUsage, `unknown command "frob"`},
		{"module", exitUsage, "hostd module needs a command"},
		{"module frob", exitUsage, `hostd module has no command "frob"`},
		{"module ls extra", exitUsage, "want 'hostd module ls"},
		{"module ls --frob", exitUsage, "unknown flag: --frob"},
		{"module ls -o xml", exitUsage, "must be table or json"},
		{"module push", exitUsage, "want 'hostd module push FILE.wasm"},
		{"entity send counter a", exitUsage, "want 'hostd entity send TYPE ID COMMAND [JSON]"},
		{"entity send counter a add --expected-sequence -1 --addr " + nowhere, exitUsage, "must be 0 or more"},
		{"entity ls counter --status asleep", exitUsage, "must be one of active, parked"},
		{"entity ls counter --limit -1", exitUsage, "--limit is -1"},
		{"shard move one n1", exitUsage, "not a shard's number"},
		{"module ls --timeout 0s", exitUsage, "--timeout"},
		{"module ls --addr http://", exitUsage, "not an address"},
		{"dev --nodes 17", exitUsage, "at most 16"},
		{"dev --nodes 2 --listen nowhere", exitUsage, "must be HOST:PORT"},
		{"dev --nodes 0", exitUsage, "at least 1"},
		{"serve --listen 0.0.0.0:0", exitUsage, "--insecure-listen"},
		{"serve --shards many", exitUsage, "not a whole number"},
		{"serve --config " + filepath.Join(t.TempDir(), "absent.yaml"), exitUsage, "absent.yaml"},
		{"bench --workload sleep", exitUsage, "is not one of"},
		{"bench --nodes 0", exitUsage, "from 1 to 16"},
		{"bench --duration 1ms", exitUsage, "at least 100ms"},
		{"demo --source " + t.TempDir(), exitUsage, "is not a checkout"},
		{"module ls --addr " + nowhere, exitFailed, "hostd dev"},
		{"entity get counter a --addr " + nowhere, exitFailed, "no node answers"},
		{"module check " + text, exitFailed, "abi/ABI.md"},
		{"module check absent.wasm", exitFailed, "Give the path of a .wasm file."},
		{"verify " + text, exitFailed, "is not a directory"},
		{"recover " + t.TempDir(), exitUsage, "--accept-loss"},
		{"version", exitDone, ""},
	} {
		got := hostd(t, strings.Fields(tt.args)...)
		if got.code != tt.code || !strings.Contains(got.err, tt.says) {
			t.Errorf("hostd %s: exit code %d and %q, want %d and %q", tt.args, got.code, got.err, tt.code, tt.says)
		}
		if tt.code != exitDone && tt.args != "" && tt.args != "module" && got.out != "" {
			t.Errorf("hostd %s: a failure printed data: %q", tt.args, got.out)
		}
	}
}

func TestAddressComesFromTheEnvironment(t *testing.T) {
	t.Setenv("HOSTD_ADDR", "127.0.0.1:1")
	if got := hostd(t, "module", "ls"); got.code != exitFailed || !strings.Contains(got.err, "no node answers at 127.0.0.1:1") {
		t.Errorf("got %+v", got)
	}
	if got := hostd(t, "module", "ls", "--addr", "127.0.0.1:2"); !strings.Contains(got.err, "127.0.0.1:2") {
		t.Errorf("the flag does not win: %+v", got)
	}
}

func TestPayloads(t *testing.T) {
	for _, tt := range []struct{ in, text, json string }{
		{`{ "a": 12345678901234567890 }`, `{"a":12345678901234567890}`, `{"json":{"a":12345678901234567890}}`},
		{"", "", "{}"},
		{"\x00\xff", `"\x00\xff"`, `{"data":"AP8="}`},
		{"\"\xff\"", `"\"\xff\""`, `{"data":"Iv8i"}`}, // valid JSON to Go, but not UTF-8
	} {
		p := newPayload([]byte(tt.in))
		var out strings.Builder
		if err := writeJSON(&out, p, ""); err != nil {
			t.Fatal(err)
		}
		if p.text() != tt.text || out.String() != tt.json+"\n" {
			t.Errorf("%q: %q and %s", tt.in, p.text(), out.String())
		}
	}
}

// What a module or a user chose must not move the cursor of a terminal.
func TestCleanQuotesControlCharacters(t *testing.T) {
	for in, want := range map[string]string{"plain ü": "plain ü", "a\x1b[2J": `"a\x1b[2J"`, "a\nb": `"a\nb"`, "\u009b": `"\u009b"`} {
		if got := clean(in); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}

func TestBenchPayloadHasItsSize(t *testing.T) {
	for size, want := range map[int]int{0: 12, 10: 12, 100: 100, 4096: 4096} {
		if got := benchPayload(size); len(got) != want {
			t.Errorf("%d: got %d bytes, want %d", size, len(got), want)
		}
	}
}

func TestPortsFileIsReplacedWhole(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ports.json")
	for _, id := range []string{"n1", "n2"} {
		if err := writePorts(path, []nodeInfo{{NodeID: id, API: "http://127.0.0.1:1", PID: 1, DataDir: "/d"}}); err != nil {
			t.Fatal(err)
		}
		p, err := readPorts(path)
		if err != nil || len(p.Nodes) != 1 || p.Nodes[0].NodeID != id {
			t.Fatalf("read %+v, %v", p, err)
		}
	}
	left, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(left) != 1 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestCleanDataLeavesWhatIsNotANodes(t *testing.T) {
	data := t.TempDir()
	for _, f := range []string{"n1/node.json", "n1/wal/1.wal", "n2/other.txt", "notes/node.json"} {
		path := filepath.Join(data, f)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := cleanData(data); err != nil {
		t.Fatal(err)
	}
	for f, want := range map[string]bool{"n1": false, "n2/other.txt": true, "notes/node.json": true} {
		if _, err := os.Stat(filepath.Join(data, f)); (err == nil) != want {
			t.Errorf("%s: %v", f, err)
		}
	}
}
