package main

import (
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/hostd/hostd/abi/abitest"
	"github.com/hostd/hostd/cmd/hostd/internal/bench"
	"github.com/hostd/hostd/cmd/hostd/internal/cli"
	"github.com/hostd/hostd/cmd/hostd/internal/devcluster"
	"github.com/hostd/hostd/cmd/hostd/internal/modulecheck"
	"github.com/hostd/hostd/tests/support/testkit"
)

// checkOrderThatWaits checks that a drain that the cluster cannot perform ends
// with the reason.
func checkOrderThatWaits(t *testing.T) {
	t.Helper()
	reason := "no other voter of shard"
	got := hostd(t, "node", "drain", "n1", "--timeout", "4s")
	if got.code != cli.ExitFailed || !strings.Contains(got.err, "hostd: drain: the operation is pending") || strings.Count(got.err, reason) < 2 {
		t.Errorf("drain of the only node: %+v", got)
	}
	if status := hostd(t, "cluster", "status"); !strings.Contains(status.out, reason) {
		t.Errorf("cluster status: %+v", status)
	}
	if got := hostd(t, "node", "resume", "n1"); got.code != cli.ExitDone {
		t.Errorf("resume: %+v", got)
	}
}

// A node for development: the output of client commands, the data after the
// node is killed, and the result of verify.
func TestDevelopmentNode(t *testing.T) {
	dir := t.TempDir()
	dev := []string{"dev", "--data", filepath.Join(dir, "data"), "--listen", "127.0.0.1:0", "--shards", "3", "--ports-file"}
	testkit.ShareCache(t, filepath.Join(dir, "data", "n1"))
	ports := filepath.Join(dir, "first.json")
	first := start(t, append(dev, ports, "--module", counterFile(t))...)
	node := first.ready(t, ports)
	t.Setenv("HOSTD_ADDR", node.API)
	checkClientCommands(t, node)
	checkProfiles(t)
	checkTop(t)
	checkGuestProfiles(t)
	checkOrderThatWaits(t)

	if err := syscall.Kill(node.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if code := first.end(t); code != cli.ExitFailed || !strings.Contains(first.err.String(), "all nodes have exited") {
		t.Fatalf("dev without a node: exit code %d, %s", code, first.err.String())
	}
	ports = filepath.Join(dir, "second.json")
	second := start(t, append(dev, ports, "--allow-origins", "http://127.0.0.1:5173,http://page.example")...)
	node = second.ready(t, ports)
	t.Setenv("HOSTD_ADDR", node.API)
	checkOrigins(t, node.API, map[string]bool{"http://127.0.0.1:5173": true, "http://page.example": true, "http://127.0.0.1:5174": false})
	if got := hostd(t, "entity", "query", "counter", "a b/ü", "total"); got.code != cli.ExitDone || got.out != "{\"total\":8}\n" {
		t.Errorf("after the kill: %+v", got)
	}
	if got := hostd(t, "entity", "send", "counter", "a b/ü", "add", `{"amount":5}`, "--command-id", "five", "-o", "json"); !strings.Contains(got.out, `"duplicate": true`) {
		t.Errorf("the command was run again: %+v", got)
	}
	second.interrupt()
	if code := second.end(t); code != cli.ExitDone {
		t.Fatalf("interrupted dev: exit code %d, %s", code, second.err.String())
	}

	if got := hostd(t, "verify", node.DataDir); got.code != cli.ExitDone {
		t.Errorf("verify of sound data: %+v", got)
	}
	damage(t, node.DataDir)
	if got := hostd(t, "verify", node.DataDir); got.code != cli.ExitFailed || !strings.Contains(got.err, "fault") {
		t.Errorf("verify of damaged data: %+v", got)
	}
}

// checkOrigins makes requests like browsers do for pages of different origins,
// and checks which are allowed.
func checkOrigins(t *testing.T, api string, origins map[string]bool) {
	t.Helper()
	for origin, may := range origins {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, api+"/e/counter/a/q/total", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Origin", origin)
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, answer.Body) // only the status matters
		answer.Body.Close()
		allowed := answer.Header.Get("Access-Control-Allow-Origin")
		if may && (answer.StatusCode != http.StatusOK || allowed != origin) || !may && (answer.StatusCode != http.StatusForbidden || allowed != "") {
			t.Errorf("a page of %s: %s, allowed: %q", origin, answer.Status, allowed)
		}
	}
}

// damage changes a byte in the first record of the log.
func damage(t *testing.T, dataDir string) {
	t.Helper()
	logs, err := filepath.Glob(filepath.Join(dataDir, "wal", "*.wal"))
	if err != nil || len(logs) == 0 {
		t.Fatalf("no log in %s: %v", dataDir, err)
	}
	f, err := os.OpenFile(logs[0], os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	const at = 4096 + 100 // after the segment's header
	var b [1]byte
	if _, err := f.ReadAt(b[:], at); err != nil {
		t.Fatal(err)
	}
	b[0] ^= 0x10
	if _, err := f.WriteAt(b[:], at); err != nil {
		t.Fatal(err)
	}
}

func checkClientCommands(t *testing.T, node devcluster.NodeInfo) {
	t.Helper()
	type sent struct {
		JSON       struct{ Total int } `json:"json"`
		Sequence   uint64              `json:"sequence"`
		EventCount int                 `json:"eventCount"`
		Duplicate  bool                `json:"duplicate"`
		NodeID     string              `json:"nodeId"`
		CommandID  string              `json:"commandId"`
		Fuel       int64               `json:"fuel"`
	}
	if got := hostd(t, "entity", "send", "counter", "a b/ü", "add", `{"amount":3}`); got.code != cli.ExitDone || got.out != "{\"total\":3}\n" {
		t.Fatalf("send: %+v", got)
	}
	got := hostdIn(t, `{"amount":5}`, "entity", "send", "counter", "a b/ü", "add", "-", "--command-id", "five", "--expected-sequence", "1", "-o", "json")
	if s := decode[sent](t, got.out); s.JSON.Total != 8 || s.Sequence != 2 || s.EventCount != 1 || s.Duplicate || s.NodeID != "n1" || s.CommandID != "five" {
		t.Errorf("send from the standard input: %+v", got)
	}
	if got := hostd(t, "entity", "query", "counter", "a b/ü", "total", "-o", "json"); !strings.Contains(got.out, `"total": 8`) || !strings.Contains(got.out, `"sequence": 2`) {
		t.Errorf("query: %+v", got)
	}
	if got := hostd(t, "entity", "events", "counter", "a b/ü", "-o", "json"); strings.Count(got.out, "\n") != 2 || decode[eventView](t, got.out).Sequence != 1 {
		t.Errorf("events: %+v", got)
	}
	if got := hostd(t, "entity", "get", "counter", "a b/ü"); !strings.Contains(got.out, "active") || got.code != cli.ExitDone {
		t.Errorf("get: %+v", got)
	}
	entities := decode[struct{ Entities []entityLine }](t, hostd(t, "entity", "ls", "counter", "-o", "json").out)
	if len(entities.Entities) != 1 || entities.Entities[0].EntityID != "a b/ü" || entities.Entities[0].Sequence != 2 {
		t.Errorf("entity ls: %+v", entities)
	}
	if got := hostd(t, "entity", "ls", "--status", "active"); got.code != cli.ExitDone || !strings.Contains(got.out, "TYPE") || !strings.Contains(got.out, "counter  a b/ü") {
		t.Errorf("entity ls of all types: %+v", got)
	}
	if got := hostd(t, "entity", "ls", "--status", "quarantined", "-o", "json"); got.code != cli.ExitDone || len(decode[struct{ Entities []entityLine }](t, got.out).Entities) != 0 {
		t.Errorf("entity ls of what is quarantined: %+v", got)
	}
	modules := decode[struct{ Modules []moduleView }](t, hostd(t, "module", "ls", "-o", "json").out).Modules
	if len(modules) != 1 || modules[0].Name != "counter" || len(modules[0].ActiveFor) != 1 {
		t.Fatalf("module ls: %+v", modules)
	}
	for _, name := range []string{"counter", modules[0].Digest, modules[0].Digest[:minDigestPrefix]} {
		if got := hostd(t, "module", "describe", name); !strings.Contains(got.out, "add, reset") {
			t.Errorf("module describe %s: %+v", name, got)
		}
	}
	if got := hostd(t, "module", "activate", "counter", modules[0].Digest[:12]); got.code != cli.ExitDone {
		t.Errorf("module activate: %+v", got)
	}
	cluster := decode[clusterView](t, hostd(t, "cluster", "status", "-o", "json").out)
	if !cluster.Quorum || cluster.ShardCount != 3 || len(cluster.Members) != 1 || cluster.Members[0].NodeID != node.NodeID {
		t.Errorf("cluster status: %+v", cluster)
	}
	shards := decode[struct{ Shards []shardView }](t, hostd(t, "shard", "ls", "-o", "json").out).Shards
	if len(shards) != 4 || shards[1].Leader != node.NodeID {
		t.Errorf("shard ls: %+v", shards)
	}
	for _, wrong := range []struct{ args, says string }{
		{"entity send counter x explode", "module describe"},
		{"entity send nothing x add", "module push"},
		{"entity send counter a --expected-sequence 9 add", "the new --expected-sequence"},
		{"entity send counter a reset --command-id five --expected-sequence 9", "--expected-sequence"},
		{"entity send counter a reset --first-tried 5s", "needs the --command-id"},
		{"entity delete counter a --command-id five --first-tried -5s", "must be above 0"},
		{"entity skip-timer counter a t --first-tried 5s", "needs the --command-id"},
		{"module activate counter 00000000", "hostd module ls"},
		{"module activate counter xyz", "is not a digest"},
		{"module activate counter " + modules[0].Digest + " --shadow 10%", "already serves counter"},
		{"module activate counter " + modules[0].Digest + " --shadow 10", "percentage"},
		{"module activate counter " + modules[0].Digest + " --shadow off", "setting"},
	} {
		if got := hostd(t, strings.Fields(wrong.args)...); got.code == cli.ExitDone || !strings.Contains(got.err, wrong.says) {
			t.Errorf("hostd %s: %+v", wrong.args, got)
		}
	}
}

// If a parent is killed, the system ends its nodes, because the parent
// cannot stop them.
func TestNodesDieWithTheirParent(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the system has no death signal for children")
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ports := filepath.Join(t.TempDir(), "ports.json")
	parent := exec.Command(program, "dev", "--data", t.TempDir(), "--listen", "127.0.0.1:0", "--shards", "1", "--ports-file", ports)
	if err := parent.Start(); err != nil { // it runs as hostd: see TestMain
		t.Fatal(err)
	}
	defer parent.Wait()
	defer parent.Process.Kill()
	var p devcluster.PortsFile
	eventually(t, "the ports file is written", func() bool {
		p, err = devcluster.ReadPorts(ports)
		return err == nil
	})
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the node is gone", func() bool {
		return errors.Is(syscall.Kill(p.Nodes[0].PID, 0), syscall.ESRCH) || isZombie(p.Nodes[0].PID)
	})
}

// isZombie reports whether a process has ended but its new parent, which may be
// slow, has not reaped it yet.
func isZombie(pid int) bool {
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return true
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return strings.HasPrefix(rest, "Z")
}

func TestModuleCheck(t *testing.T) {
	if testing.Short() {
		t.Skip("short: no goroutine of ours takes part")
	}
	samples := filepath.Join(t.TempDir(), "samples.json")
	if err := os.WriteFile(samples, []byte(`{"counter":{"add":[{"amount":2},{"amount":-1}]}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	got := hostd(t, "module", "check", counterFile(t), "--samples", samples, "-o", "json")
	v := decode[modulecheck.Report](t, got.out)
	if got.code != cli.ExitDone || v.Name != "counter" || v.Functions == 0 || len(v.Checks) < 5 || v.Count(abitest.Failed) != 0 {
		t.Errorf("%+v", got)
	}
	damaged := counterFile(t)
	wasm, err := os.ReadFile(damaged)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(damaged, wasm[:len(wasm)/2], 0o600); err != nil {
		t.Fatal(err)
	}
	if got := hostd(t, "module", "check", damaged); got.code != cli.ExitFailed || !strings.Contains(got.err, "abi/ABI.md") || got.out != "" {
		t.Errorf("half a module: %+v", got)
	}
}

func TestDemo(t *testing.T) {
	testkit.Long(t, "long")
	if testing.Short() {
		t.Skip("compiles three modules")
	}
	got := hostd(t, "demo")
	if got.code != cli.ExitDone || !strings.Contains(got.out, "(duplicate: true)") || !strings.Contains(got.out, `{"total":7}`) ||
		!strings.Contains(got.out, "signal: killed") || !strings.Contains(got.out, "leaders rebalanced over all three") {
		t.Errorf("exit code %d\n%s%s", got.code, got.out, got.err)
	}
}

func TestBenchMeasuresEveryWorkload(t *testing.T) {
	got := hostd(t, "bench", "--module", counterFile(t), "--duration", "500ms", "--warm-up", "50ms", "--concurrency", "4", "--keys", "10",
		"--events", "300", "--payload", "100", "-o", "json")
	if got.code != cli.ExitDone {
		t.Fatalf("exit code %d\n%s%s", got.code, got.out, got.err)
	}
	r := decode[bench.Report](t, got.out)
	workloads := []string{"echo", "unary", "query", "stream", "half", "hot", "echo-one", "unary-one", "query-one", "new", "activation"}
	if len(r.Results) != len(workloads) || len(r.Ratios) < 7 || r.Payload != 100 || r.Nodes != 1 || r.Replication != 1 {
		t.Fatalf("%+v", r)
	}
	if r.Idle == nil || len(r.Idle.Nodes) != 1 || r.Idle.Nodes[0].AnonymousBytes == 0 || r.Idle.ReadySeconds <= 0 || r.Idle.Shards == 0 {
		t.Errorf("idle: %+v", r.Idle)
	}
	for i, line := range r.Results {
		if line.Workload != workloads[i] || line.Operations == 0 || line.Errors != 0 || line.P50Us <= 0 || line.P50Us > line.P999Us || line.P999Us > line.MaxUs {
			t.Errorf("%+v", line)
		}
	}
	for _, ratio := range r.Ratios {
		// A short run may take less CPU time than the resolution of the
		// system's clock.
		if ratio.Value <= 0 && !strings.Contains(ratio.Name, "CPU") {
			t.Errorf("%+v", ratio)
		}
	}
	if strings.Contains(got.out, "starting") || !strings.Contains(got.err, "measuring activation") {
		t.Errorf("data and talk are mixed:\n%s%s", got.out, got.err)
	}
}
