package disk

import (
	"bytes"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hostd/hostd/api/client"
	"github.com/hostd/hostd/tests/support/testkit"
)

var allDamages = flag.Bool("damages", false, "damage every file in every way, not in one or two")

// fewDamages is the sampling rate: by default, one in this many kinds of damage
// is tried. Different kinds of damage are tried for each kind of file.
const fewDamages = 8

// damages are the ways to damage a file.
var damages = []struct {
	name string
	do   func([]byte) []byte
}{
	{"flipped bit at the start", func(b []byte) []byte { b[min(2, len(b)-1)] ^= 0x10; return b }},
	{"flipped bit behind the header", func(b []byte) []byte { b[min(5000, used(b)/3)] ^= 0x04; return b }},
	{"flipped bit in the header", func(b []byte) []byte { b[min(41, used(b)/2)] ^= 0x02; return b }},
	{"flipped bit in the middle", func(b []byte) []byte { b[used(b)/2] ^= 0x01; return b }},
	{"flipped bit at the end", func(b []byte) []byte { b[used(b)-1] ^= 0x80; return b }},
	{"cut in half", func(b []byte) []byte { return b[:used(b)/2] }},
	{"empty", func([]byte) []byte { return nil }},
	{"zeroed page", func(b []byte) []byte {
		at := used(b) / 2 &^ 4095
		clear(b[at:min(at+4096, len(b))])
		return b
	}},
	{"missing", nil},
}

// used returns the length of a file without its trailing zeros.
func used(b []byte) int { return max(1, len(bytes.TrimRight(b, "\x00"))) }

// The valid outcomes of damage.
const (
	refused  = "refused at the start" // the error says what is damaged and what to do
	partly   = "refused when read"    // only reads of the damaged part fail, with an error
	harmless = "everything is served"
	// unverified is an invalid outcome unless a case permits it, because the
	// offline check should find all damage that the node finds.
	unverified = "refused when read, and verify finds nothing"
)

// kinds are the kinds of files in a data directory, with the permitted outcomes
// of damage.
var kinds = []struct {
	name, pattern string
	last          bool   // damage the newest file instead of the oldest
	state         string // state of the directory: "stopped" gracefully or "killed"
	allowed       []string
	say           string // expected in the error
}{
	{"oldest log segment", "wal/*.wal", false, "stopped", []string{refused, harmless}, "write-ahead log"},
	{"newest log segment", "wal/*.wal", true, "stopped", []string{refused, harmless}, "write-ahead log"},
	{"log segment after a kill", "wal/*.wal", true, "killed", []string{refused, harmless}, "write-ahead log"},
	{"log mark", "wal/MARK", false, "stopped", []string{refused, harmless}, "write-ahead log"},
	{"log mark after a kill", "wal/MARK", false, "killed", []string{refused, harmless}, "write-ahead log"},
	{"table", "store/*.sst", false, "stopped", []string{refused, partly, harmless}, "store"},
	{"newest table", "store/*.sst", true, "killed", []string{refused, partly, harmless}, "store"},
	{"memory table", "store/*.mem", true, "killed", []string{refused, harmless}, "store"},
	{"manifest of the store", "store/MANIFEST", false, "stopped", []string{refused, harmless}, "store"},
	{"key registry of the store", "store/KEYREGISTRY", false, "stopped", []string{refused, harmless}, "store"},
	{"value log", "store/*.vlog", true, "killed", []string{refused, harmless}, "store"},
	{"discard statistics", "store/DISCARD", false, "stopped", []string{refused, harmless}, "store"},
	{"identity", "node.json", false, "stopped", []string{refused, harmless}, "node.json"},
	{"module", "modules/*.wasm", false, "stopped", []string{partly}, ""},
	{"compile cache", "cache/wazero-*/*", false, "stopped", []string{harmless}, ""},
}

// TestDamage damages one file of a node's data directory at a time. Wrong data
// must never be served, and an error must name the cause.
func TestDamage(t *testing.T) {
	testkit.Long(t, "powerloss")
	if testing.Short() {
		t.Skip("damage to every kind of file is not tried in short mode")
	}
	dirs, truth := prepare(t)
	var table strings.Builder
	for i, k := range kinds {
		for j, d := range damages {
			if (i+j)%fewDamages != 0 && !*allDamages {
				continue
			}
			t.Run(k.name+"/"+d.name, func(t *testing.T) {
				dir := filepath.Join(t.TempDir(), "data")
				copyDir(t, dirs[k.state], dir)
				file := damage(t, dir, k.pattern, k.last, d.do)
				outcome, text := observe(t, dir, truth, k.say)
				fmt.Fprintf(&table, "%-26s %-26s %s%s\n", k.name, d.name, outcome, text)
				if k.name == "module" && d.do == nil && outcome == unverified {
					return // the offline check does not know which modules should exist
				}
				if !slices.Contains(k.allowed, outcome) {
					t.Errorf("%s %s: %s%s", file, d.name, outcome, text)
				}
			})
		}
	}
	t.Logf("outcomes:\n%s", table.String())
}

// prepare writes a data directory whose oldest data is only in the store. It
// returns the directory after a graceful stop and after a kill, and the data in
// it.
func prepare(t *testing.T) (map[string]string, ledger) {
	t.Helper()
	node := testkit.StartNode(t, testkit.NodeOptions{Shards: 2})
	c := patient(node)
	pushLedger(t, node, c)
	write(t, c, noteType, 20, 400)
	write(t, c, bulkType, 4, 1200)
	first := filepath.Join(node.DataDir(), "wal", "0000000000000001.wal")
	node.Await("the log is cut", func() bool { _, err := os.Stat(first); return os.IsNotExist(err) })
	truth, failures := read(t.Context(), c)
	if len(failures) > 0 || len(truth) != 24 {
		t.Fatalf("%d entities, %v", len(truth), failures)
	}
	node.Kill()
	dirs := map[string]string{"stopped": filepath.Join(t.TempDir(), "stopped"), "killed": filepath.Join(t.TempDir(), "killed")}
	copyDir(t, node.DataDir(), dirs["killed"])
	node.Start()
	node.Stop()
	copyDir(t, node.DataDir(), dirs["stopped"])
	return dirs, truth
}

// copyDir copies a directory and keeps holes in files.
func copyDir(t *testing.T, from, to string) {
	t.Helper()
	if out, err := exec.Command("cp", "-r", "--sparse=always", "--reflink=auto", from, to).CombinedOutput(); err != nil {
		t.Fatalf("copy %s: %v: %s", from, err, out)
	}
}

// damage damages the first or last matching file and returns its name.
func damage(t *testing.T, dir, pattern string, last bool, do func([]byte) []byte) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil || len(files) == 0 {
		t.Fatalf("no file matches %s: %v", pattern, err)
	}
	slices.Sort(files)
	file := files[0]
	if last {
		file = files[len(files)-1]
	}
	if do == nil {
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		return file
	}
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, do(slices.Clone(content)), fs.FileMode(0o600)); err != nil {
		t.Fatal(err)
	}
	return file
}

// advice lists the actions; an error must suggest one of them.
var advice = []string{"hostd verify", "hostd recover", "backup", "remove it", "remove the file"}

// observe starts a node on the directory and returns the outcome of the damage.
// Any other outcome fails the test.
func observe(t *testing.T, dir string, truth ledger, say string) (outcome, text string) {
	t.Helper()
	node := testkit.NewNode(t, testkit.NodeOptions{DataDir: dir, Shards: 2})
	verified, code := node.Verify()
	if err := node.TryStart(); err != nil {
		last := lastLine(node.Log())
		switch {
		case node.Running():
			return "HANGS", ": " + err.Error()
		case node.ExitCode() <= 0:
			return "CRASHES", fmt.Sprintf(" with exit code %d: %s", node.ExitCode(), node.Log())
		case strings.Contains(node.Log(), "goroutine "):
			return "PANICS", ": " + node.Log()
		case !strings.Contains(last, say):
			return "refused without naming " + say, ": " + last
		case !slices.ContainsFunc(advice, func(a string) bool { return strings.Contains(last, a) }):
			return "refused without saying what to do", ": " + last
		case code == 0:
			return "refused, and verify finds nothing", ": " + last + "\n" + verified
		}
		return refused, ": " + shorten(last)
	}
	c := node.Client(client.Options{Timeout: 2 * time.Second, MaxBackoff: 50 * time.Millisecond})
	now, failures := read(t.Context(), c)
	if err := truth.compare(now, failures); err != nil {
		return "WRONG DATA", fmt.Sprintf(": %v (failures: %v)", err, failures)
	}
	for _, err := range failures {
		if !slices.Contains(refusals, client.CodeOf(err)) {
			return "an error of another kind", ": " + err.Error()
		}
	}
	if len(failures) > 0 {
		if code == 0 {
			return unverified, ": " + failures[0].Error()
		}
		return partly, fmt.Sprintf(": %d entities: %s", len(failures), shorten(failures[0].Error()))
	}
	if _, err := patient(node).Send(t.Context(), client.Command{EntityType: noteType, EntityID: "0", Name: "go", ID: "after"}); err != nil {
		return "takes no commands", ": " + err.Error() + "\n" + node.Log()
	}
	events, err := readEntity(t.Context(), c, noteType, "0")
	if err != nil || len(events) != len(truth[noteType+"/0"])+1 || !slices.Equal(events[:len(events)-1], truth[noteType+"/0"]) {
		return "WRONG DATA", fmt.Sprintf(" after another command: %d events, %v", len(events), err)
	}
	return harmless, ""
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}

func shorten(text string) string { return text[:min(len(text), 300)] }

// TestDamagedModuleIsReplaced checks that while a module's file is damaged its
// entities are not served, and that uploading the module again restores them.
func TestDamagedModuleIsReplaced(t *testing.T) {
	node := testkit.StartNode(t, testkit.NodeOptions{Shards: 2})
	c := patient(node)
	pushLedger(t, node, c)
	write(t, c, noteType, 3, 30)
	truth, failures := read(t.Context(), c)
	if len(failures) > 0 {
		t.Fatal(failures)
	}
	node.Stop()
	damage(t, node.DataDir(), "modules/*.wasm", false, damages[1].do)
	node.Start()
	hasty := node.Client(client.Options{Timeout: time.Second})
	if now, failures := read(t.Context(), hasty); len(failures) == 0 || len(now) != 0 {
		t.Fatalf("with a damaged module %d entities are served, %v", len(now), failures)
	}
	if !strings.Contains(node.Log(), "is damaged") {
		t.Errorf("the log does not say what is damaged:\n%s", node.Log())
	}
	pushLedger(t, node, c)
	now, failures := read(t.Context(), c)
	if err := truth.compare(now, failures); err != nil || len(failures) > 0 {
		t.Fatalf("after the module was pushed again: %v, %v", err, failures)
	}
	write(t, c, noteType, 1, 1)
}
