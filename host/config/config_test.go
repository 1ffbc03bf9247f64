package config_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/hostd/hostd/host/config"
)

func file(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "hostd.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func env(pairs map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		v, ok := pairs[name]
		return v, ok
	}
}

func TestDefaultIsValidAndLocal(t *testing.T) {
	c, err := config.Load(config.Sources{})
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(c, config.Default()) {
		t.Errorf("got %+v", c)
	}
	if c.Admin != config.AdminReadOnly || !c.Loopback() || c.InsecureListen {
		t.Errorf("the defaults are not safe: %+v", c)
	}
}

func TestLaterSourcesWin(t *testing.T) {
	c, err := config.Load(config.Sources{
		File:      file(t, "shards: 3\nexecutors: 3\nlog-level: debug\nmax-deadline: 1m\nmax-module-bytes: 4 MiB\ninsecure-listen: true\n"),
		LookupEnv: env(map[string]string{"HOSTD_EXECUTORS": "5", "HOSTD_STOP_TIMEOUT": "3s", "HOSTD_NODE_ID": "env"}),
		Flags:     map[string]string{"node-id": "flag", "listen": "0.0.0.0:1"},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := config.Default()
	want.Shards, want.Executors, want.LogLevel, want.MaxDeadline, want.MaxModuleBytes = 3, 5, slog.LevelDebug, time.Minute, 4<<20
	want.StopTimeout, want.NodeID, want.Listen, want.InsecureListen = 3*time.Second, "flag", "0.0.0.0:1", true
	if !reflect.DeepEqual(c, want) {
		t.Errorf("got  %+v\nwant %+v", c, want)
	}
}

func TestFaultsAreJoinedAndNameTheirSource(t *testing.T) {
	_, err := config.Load(config.Sources{
		File:      file(t, "executors: many\nodd: 1\nshards: [1]\nexecutors: 2\n"),
		LookupEnv: env(map[string]string{"HOSTD_MAX_DEADLINE": "soon"}),
		Flags:     map[string]string{"max-message-bytes": "-1", "no-such": "1"},
	})
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{
		`hostd.yaml:1: executors: "many" is not a whole number`, "hostd.yaml:2: odd: unknown key", "hostd.yaml:3: shards: must be a single value",
		"hostd.yaml:4: executors: duplicate key", "environment variable HOSTD_MAX_DEADLINE:", "flag --max-message-bytes:", "flag --no-such:",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in:\n%v", want, err)
		}
	}
}

func TestFiles(t *testing.T) {
	for _, tt := range []struct{ name, text, fault string }{
		{"empty", "", ""},
		{"comments only", "# nothing\n", ""},
		{"list", "- 1\n", "must be a mapping"},
		{"two documents", "executors: 1\n---\nexecutors: 2\n", "single YAML document"},
		{"not YAML", "\texecutors: 1", "hostd.yaml"},
	} {
		_, err := config.Load(config.Sources{File: file(t, tt.text)})
		if (err == nil) != (tt.fault == "") || err != nil && !strings.Contains(err.Error(), tt.fault) {
			t.Errorf("%s: got %v, want %q", tt.name, err, tt.fault)
		}
	}
	if _, err := config.Load(config.Sources{File: filepath.Join(t.TempDir(), "absent")}); err == nil {
		t.Error("a file that does not exist was accepted")
	}
}

func TestListenMustBeLoopback(t *testing.T) {
	for listen, ok := range map[string]bool{
		"127.0.0.1:7070": true, "127.9.9.9:1": true, "[::1]:7070": true, "localhost:0": true,
		"0.0.0.0:7070": false, ":7070": false, "[::]:1": false, "10.0.0.1:1": false, "example.org:1": false,
		"localhost.example.org:1": false, "127.0.0.1": false, "": false,
	} {
		c := config.Default()
		c.Listen = listen
		if err := c.Validate(); (err == nil) != ok {
			t.Errorf("%q: got %v", listen, err)
		}
		c.InsecureListen = true
		if err := c.Validate(); strings.Contains(listen, ":") && err != nil {
			t.Errorf("%q with insecure-listen: %v", listen, err)
		}
	}
}

func TestBounds(t *testing.T) {
	set := func(key, value string) map[string]string { return map[string]string{key: value} }
	for _, tt := range []struct {
		flags map[string]string
		ok    bool
	}{
		{set("shards", "0"), false}, {set("shards", "1"), true}, {set("shards", "4096"), true}, {set("shards", "4097"), false},
		{set("executors", "0"), true}, {set("executors", "256"), true}, {set("executors", "257"), false},
		{set("instance-memory-bytes", "1MiB"), true}, {set("instance-memory-bytes", "65536"), false}, {set("instance-memory-bytes", "1048577"), false},
		{set("instance-memory-bytes", "256MiB"), true}, {set("instance-memory-bytes", "257MiB"), false},
		{set("max-module-bytes", "32MiB"), true}, {set("max-module-bytes", "33554433"), false},
		{set("max-entity-in-flight", "0"), false}, {set("max-entity-in-flight", "1"), true},
		{set("max-stream-bytes", "65535"), false}, {set("max-stream-bytes", "64KiB"), true}, {set("max-stream-bytes", "1073741825"), false},
		{set("max-waiting-bytes", "1048575"), false}, {set("max-waiting-bytes", "1MiB"), true}, {set("max-waiting-bytes", "1099511627777"), false},
		{set("max-address-connections", "0"), false}, {set("max-address-connections", "1"), true}, {set("max-address-connections", "4096"), true}, {set("max-address-connections", "4097"), false},
		{set("max-address-streams", "0"), false}, {set("max-address-streams", "1"), true}, {set("max-address-streams", "1024"), true}, {set("max-address-streams", "1025"), false},
		{set("max-outbox-messages", "0"), false}, {set("max-outbox-messages", "1"), true}, {set("max-outbox-bytes", "1048575"), false}, {set("max-outbox-bytes", "1MiB"), true},
		{set("timer-rate", "0"), false}, {set("timer-rate", "1"), true}, {set("timer-rate", "1000000"), true}, {set("timer-rate", "1000001"), false},
		{set("min-schedule-interval", "99ms"), false}, {set("min-schedule-interval", "100ms"), true}, {set("min-schedule-interval", "1h"), true}, {set("min-schedule-interval", "61m"), false},
		{set("default-deadline", "30s"), true}, {set("default-deadline", "30001ms"), false},
		{set("wal-segment-bytes", "8MiB"), true}, {set("wal-segment-bytes", "8388609"), false},
		{set("leadership-cooldown", "99ms"), false}, {set("leadership-cooldown", "100ms"), true}, {set("leadership-cooldown", "61m"), false},
		{set("verify-rate", "-1"), false}, {set("verify-rate", "0"), true}, {set("verify-rate", "100000001"), false}, {set("scrub-bytes-per-second", "65535"), false}, {set("scrub-bytes-per-second", "64KiB"), true}, {set("scrub-bytes-per-second", "1073741825"), false},
		{set("disk-read-only-percent", "20"), true}, {set("disk-read-only-percent", "21"), false},
		{set("node-id", strings.Repeat("n", 64)), true}, {set("node-id", strings.Repeat("n", 65)), false}, {set("node-id", "N1"), false},
		{set("admin", "full"), true}, {set("admin", "all"), false}, {set("log-format", "xml"), false}, {set("data-dir", ""), false},
		{set("guest-memory-bytes", "1MiB"), false},
		{set("replication", "0"), false}, {set("replication", "1"), true}, {set("replication", "7"), true}, {set("replication", "9"), false}, {set("replication", "2"), false},
		{set("min-members", "-1"), false}, {set("min-members", "0"), true}, {set("min-members", "128"), true}, {set("min-members", "129"), false},
		{set("dead-after", "9s"), false}, {set("dead-after", "10s"), true},
		{set("rebalance-threshold", "1"), false}, {set("rebalance-threshold", "2"), true}, {set("rebalance-moves", "0"), false},
		{set("cluster-name", ""), false}, {set("cluster-name", strings.Repeat("c", 65)), false}, {set("cluster-name", "a/b"), false},
		{set("zone", "rack-1"), true}, {set("zone", "Rack 1"), false},
	} {
		_, err := config.Load(config.Sources{Flags: tt.flags})
		if (err == nil) != tt.ok {
			t.Errorf("%v: got %v", tt.flags, err)
		}
		for key := range tt.flags {
			if err != nil && !strings.Contains(err.Error(), key) {
				t.Errorf("%v: the fault does not name the key: %v", tt.flags, err)
			}
		}
	}
}

// A field accepts its own output, so that a printed configuration can be
// loaded.
func TestFieldsRoundTrip(t *testing.T) {
	from, to := config.Default(), config.Config{}
	from.Seeds = []string{"a.example:1", "[::1]:2"}
	target := map[string]config.Field{}
	for _, f := range to.Fields() {
		target[f.Name] = f
	}
	for _, f := range from.Fields() {
		if f.Usage == "" || f.Type() == "" {
			t.Errorf("%s: no usage or type", f.Name)
		}
		if strings.HasSuffix(f.Usage, "the same") || strings.Contains(f.Usage, " of these") {
			t.Errorf("%s: %q refers to another flag, but lists are sorted", f.Name, f.Usage)
		}
		if err := target[f.Name].Set(f.String()); err != nil {
			t.Errorf("%s: %v", f.Name, err)
		}
	}
	if !reflect.DeepEqual(from, to) {
		t.Errorf("got  %+v\nwant %+v", to, from)
	}
}

func TestBytes(t *testing.T) {
	for text, want := range map[string]config.Bytes{"0": 0, "1": 1, "1KiB": 1024, "3 MiB": 3 << 20, "8GiB": 8 << 30} {
		if got, err := config.ParseBytes(text); err != nil || got != want {
			t.Errorf("%q: got %d, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "MiB", "1.5MiB", "-1", "1MB", "9223372036854775807KiB", "1 "} {
		if got, err := config.ParseBytes(text); err == nil {
			t.Errorf("%q: got %d", text, got)
		}
	}
}
