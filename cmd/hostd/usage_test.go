package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hostd/hostd/cmd/hostd/internal/cli"
	"github.com/hostd/hostd/tests/support/loopback"
)

// The nouns and verbs are public, because scripts use them.
func TestEveryCommandExists(t *testing.T) {
	for _, path := range []string{
		"version", "new", "build", "test", "dev", "demo", "serve", "bench", "verify", "recover",
		"module push", "module ls", "module describe", "module activate", "module rollback", "module verify", "module check", "module rm", "module keygen", "module sign",
		"entity send", "entity query", "entity events", "entity records", "entity timers", "entity messages", "entity get", "entity state", "entity ls", "entity hot", "entity tagged", "entity tail",
		"entity deadletters ls", "entity deadletters retry", "entity deadletters discard",
		"cluster init", "cluster status", "cluster watch", "cluster rebalance", "cluster set", "doctor", "shard ls", "shard watch", "shard move", "top", "node ls", "node drain", "node resume", "node leave", "node down",
		"type suspend", "type resume", "setting get", "setting put", "setting ls", "setting watch", "journal export", "journal import", "journal verify",
		"cert create-ca", "cert create-node", "cert create-client", "token create", "token ls", "token rm", "auth can-i", "auth whoami", "cluster upgrade finalize", "context ls", "context use", "context set", "context rm",
	} {
		args := strings.Fields(path)
		c, rest, err := newRoot(cli.Stdio{}).Find(args)
		if err != nil || len(rest) != 0 || c.CommandPath() != "hostd "+path {
			t.Errorf("hostd %s: found %v, %v, %v", path, c.CommandPath(), rest, err)
			continue
		}
		if got := hostd(t, append(args, "--help")...); got.code != cli.ExitDone || !strings.Contains(got.out, "hostd "+path) {
			t.Errorf("hostd %s --help: %+v", path, got)
		}
	}
}

func TestListingsHaveJSON(t *testing.T) {
	for _, path := range []string{"module ls", "entity ls", "entity events", "entity records", "entity timers", "entity messages", "entity get", "cluster init", "cluster status", "cluster watch", "doctor", "shard ls", "shard watch", "top", "node ls",
		"setting get", "setting ls", "setting watch", "bench", "version", "journal export", "journal import", "journal verify", "entity hot", "entity deadletters ls", "cert create-ca", "cert create-node", "cert create-client"} {
		c, _, _ := newRoot(cli.Stdio{}).Find(strings.Fields(path))
		if f := c.Flags().ShorthandLookup("o"); f == nil || f.Name != "output" {
			t.Errorf("hostd %s has no flag -o", path)
		}
	}
}

func TestExitCodes(t *testing.T) {
	nowhere := loopback.Host() + ":7070" // nothing listens there
	text := filepath.Join(t.TempDir(), "text.wasm")
	if err := os.WriteFile(text, []byte("not a module"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		args string
		code int
		says string
	}{
		{"", cli.ExitUsage, "hostd needs a command"},
		{"frob", cli.ExitUsage, `unknown command "frob"`},
		{"bench-echo", cli.ExitUsage, "unknown command"},
		{"bench-spin", cli.ExitUsage, "unknown command"},
		{"module", cli.ExitUsage, "hostd module needs a command"},
		{"module frob", cli.ExitUsage, `hostd module has no command "frob"`},
		{"module lst", cli.ExitUsage, "did you mean ls?"},
		{"modul ls", cli.ExitUsage, "module"},
		{"module lst --active -o json", cli.ExitUsage, `{"error":{"code":"usage","message":"hostd module has no command \"lst\": did you mean ls?"`},
		{"entity sned counter a add --addr " + nowhere, cli.ExitUsage, "did you mean send?"},
		{"entity -o json get a", cli.ExitUsage, `{"error":{"code":"usage","message":"usage: 'hostd entity get TYPE ID`},
		{"entity get a -o json", cli.ExitUsage, `{"error":{"code":"usage","message":"usage: 'hostd entity get TYPE ID`},
		{"entity get counter a -o json --addr " + nowhere, cli.ExitFailed, `{"error":{"code":"unavailable","message":"no node answers at ` + nowhere},
		{"module ls extra", cli.ExitUsage, "usage: 'hostd module ls"},
		{"module ls --frob", cli.ExitUsage, "unknown flag: --frob"},
		{"module ls -o xml", cli.ExitUsage, "must be table, json"},
		{"module push", cli.ExitUsage, "usage: 'hostd module push FILE.wasm"},
		{"entity send counter a", cli.ExitUsage, "usage: 'hostd entity send TYPE ID COMMAND [JSON]"},
		{"entity send counter a add --expected-sequence -1 --addr " + nowhere, cli.ExitUsage, "must be 0 or more"},
		{"entity ls counter --status asleep", cli.ExitUsage, "must be one of active, quarantined"},
		{"entity tagged counter t --limit 0", cli.ExitUsage, "--limit must be between 1 and 100000, got 0"},
		{"entity tagged counter", cli.ExitUsage, ""},
		{"entity ls counter --limit -1", cli.ExitUsage, "--limit must be 0 or more, got -1"},
		{"shard move one n1", cli.ExitUsage, "not a shard's number"},
		{"module ls --timeout 0s", cli.ExitUsage, "--timeout"},
		{"module ls --addr http://", cli.ExitUsage, "not an address"},
		{"dev --nodes 17", cli.ExitUsage, "at most 16"},
		{"dev --nodes 2 --listen nowhere", cli.ExitUsage, "must be HOST:PORT"},
		{"dev --nodes 0", cli.ExitUsage, "at least 1"},
		{"serve --listen 0.0.0.0:0", cli.ExitUsage, "--insecure-listen"},
		{"serve --peer-listen 0.0.0.0:0 --insecure-listen", cli.ExitUsage, "--insecure-peers"},
		{"serve --shards many", cli.ExitUsage, "not a whole number"},
		{"serve --config " + filepath.Join(t.TempDir(), "absent.yaml"), cli.ExitUsage, "absent.yaml"},
		{"bench --workload sleep", cli.ExitUsage, "is not one of"},
		{"bench --nodes 0", cli.ExitUsage, "between 1 and 16"},
		{"bench --duration 1ms", cli.ExitUsage, "at least 100ms"},
		{"demo --source " + t.TempDir(), cli.ExitUsage, "is not a checkout"},
		{"module ls --addr " + nowhere, cli.ExitFailed, "hostd dev"},
		{"entity get counter a --addr " + nowhere, cli.ExitFailed, "no node answers"},
		{"module push absent.wasm --addr " + nowhere, cli.ExitUsage, "open absent.wasm"},
		{"dev --module absent.wasm", cli.ExitUsage, "open absent.wasm"},
		{"dev --module " + text, cli.ExitUsage, "is not a WebAssembly module"},
		{"build " + text, cli.ExitUsage, "is not a directory"},
		{"test --run [", cli.ExitUsage, "--run: "},
		{"test absent.yaml", cli.ExitFailed, "docs/guide/testing.md"},
		{"new --lang cobol lamp", cli.ExitUsage, "must be one of go"},
		{"module check " + text, cli.ExitFailed, "abi/ABI.md"},
		{"module check absent.wasm", cli.ExitFailed, "Give the path of a .wasm file."},
		{"verify " + text, cli.ExitFailed, "is not a directory"},
		{"recover " + t.TempDir(), cli.ExitUsage, "--accept-loss"},
		{"version", cli.ExitDone, ""},
		{"--version", cli.ExitDone, ""},
	} {
		got := hostd(t, strings.Fields(tt.args)...)
		if got.code != tt.code || !strings.Contains(got.err, tt.says) {
			t.Errorf("hostd %s: exit code %d and %q, want %d and %q", tt.args, got.code, got.err, tt.code, tt.says)
		}
		if tt.code != cli.ExitDone && tt.args != "" && tt.args != "module" && got.out != "" {
			t.Errorf("hostd %s: a failure printed data: %q", tt.args, got.out)
		}
	}
}

func TestAddressComesFromTheEnvironment(t *testing.T) {
	t.Setenv("HOSTD_ADDR", "127.0.0.1:1")
	if got := hostd(t, "module", "ls"); got.code != cli.ExitFailed || !strings.Contains(got.err, "no node answers at 127.0.0.1:1") {
		t.Errorf("got %+v", got)
	}
	if got := hostd(t, "module", "ls", "--addr", "127.0.0.1:2"); !strings.Contains(got.err, "127.0.0.1:2") {
		t.Errorf("the flag does not win: %+v", got)
	}
}

func TestUnknownVariablesAreWarnedAbout(t *testing.T) {
	t.Setenv("HOSTD_DATADIR", "/nowhere")
	if got := hostd(t, "version"); got.code != cli.ExitDone || !strings.Contains(got.err, "did you mean HOSTD_DATA_DIR?") {
		t.Errorf("got %+v", got)
	}
}

// TestNonUTF8ArgumentsAreRejected checks that no command sends an argument that
// is not UTF-8, because it would arrive as a different name.
func TestNonUTF8ArgumentsAreRejected(t *testing.T) {
	got := hostd(t, "entity", "get", "counter", "\xff")
	if got.code != cli.ExitUsage || !strings.Contains(got.err, "argument 4") || !strings.Contains(got.err, "UTF-8") {
		t.Errorf("%+v", got)
	}
}
