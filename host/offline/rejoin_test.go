package offline

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hostd/hostd/host/datadir"
	"github.com/hostd/hostd/sharding"
)

// A node that rejoins keeps its name but none of its replicas' votes and
// entries, and its old data is still there.
func TestRejoin(t *testing.T) {
	dir := t.TempDir()
	old := datadir.Identity{Format: sharding.Version1, Node: "n2", Disk: "olddisk", Incarnation: 7, Cluster: "c", Shards: 3, MetaReplica: 4}
	if err := old.Write(dir); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"wal/1.wal", "store/MANIFEST", "snapshots/1", "modules/m", "cache/c", "damaged-before/wal"} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var out bytes.Buffer
	if err := Rejoin(dir, time.Unix(0, 0), &out); err != nil {
		t.Fatal(err)
	}
	const aside = "damaged-19700101T000000Z"
	for name, where := range map[string]string{
		"wal/1.wal": aside, "store/MANIFEST": aside, "snapshots/1": aside, "node.json": aside,
		"modules/m": "", "cache/c": "", "damaged-before/wal": "",
	} {
		if _, err := os.Stat(filepath.Join(dir, where, name)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if left, err := datadir.HasJournal(dir); left || err != nil {
		t.Errorf("a journal is left: %v, %v", left, err)
	}
	id, err := datadir.ReadIdentity(dir)
	if err != nil || id.Node != "n2" || id.Member() || id.MetaReplica != 0 || id.Disk == "" || id.Disk == "olddisk" || id.Incarnation < 7 {
		t.Errorf("the new identity is %+v, %v", id, err)
	}
	if kept, err := datadir.ReadIdentity(filepath.Join(dir, aside)); err != nil || kept.Disk != "olddisk" {
		t.Errorf("the kept identity is %+v, %v", kept, err)
	}
	if text := out.String(); !strings.Contains(text, "moved wal\n") || !strings.Contains(text, "is in "+aside) || !strings.Contains(text, "seeds") {
		t.Errorf("it said %s", text)
	}
	for name, dir := range map[string]string{"again": dir, "no node": t.TempDir()} {
		if err := Rejoin(dir, time.Unix(1, 0), &out); err == nil || !strings.Contains(err.Error(), "seeds") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// If a crash left a journal without an identity, the node must not start,
// because it would have forgotten its votes and acknowledgements.
func TestJournalWithoutIdentity(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "store", "left"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := datadir.Open(dir, "n1", time.Now()); err == nil || !strings.Contains(err.Error(), "journal") {
		t.Errorf("got %v", err)
	}
}

// At whatever step a rejoin is interrupted, the node does not start, and the
// next rejoin completes it.
func TestInterruptedRejoinIsCompleted(t *testing.T) {
	const moving, aside = "damaged-19700101T000000Z.moving", "damaged-19700101T000000Z"
	moved := []string{"node.json", "snapshots", "store", "wal"}
	for done := range len(moved) + 2 {
		dir := t.TempDir()
		old := datadir.Identity{Format: sharding.Version1, Node: "n2", Disk: "olddisk", Incarnation: 7, Cluster: "c", Shards: 3, MetaReplica: 4, Journal: true}
		if err := old.Write(dir); err != nil {
			t.Fatal(err)
		}
		for _, name := range moved[1:] {
			if err := os.MkdirAll(filepath.Join(dir, name, "left"), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Mkdir(filepath.Join(dir, moving), 0o700); err != nil {
			t.Fatal(err)
		}
		for _, name := range moved[:min(done, len(moved))] {
			if err := os.Rename(filepath.Join(dir, name), filepath.Join(dir, moving, name)); err != nil {
				t.Fatal(err)
			}
		}
		if done > len(moved) {
			fresh := datadir.Identity{Format: sharding.Version1, Node: "n2", Disk: "newdisk", Incarnation: 7, Rejoin: "c"}
			if err := fresh.Write(dir); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := datadir.Open(dir, "n2", time.Now()); !errors.Is(err, datadir.ErrRejoining) {
			t.Errorf("interrupted after %d steps the node starts: %v", done, err)
		}
		var out bytes.Buffer
		again, renewed := Rejoin, int64(0)
		if done%2 == 1 {
			again, renewed = Renew, 9000
		}
		if err := again(dir, time.Unix(9, 0), &out); err != nil {
			t.Fatalf("interrupted after %d steps: %v", done, err)
		}
		for _, name := range moved {
			if _, err := os.Stat(filepath.Join(dir, aside, name)); err != nil {
				t.Errorf("interrupted after %d steps: %v", done, err)
			}
		}
		id, err := datadir.Open(dir, "n2", time.Now())
		if err != nil || id.Rejoin != "c" || id.Member() || id.Disk == "olddisk" || id.Disk == "" || id.Renewed != renewed && done <= len(moved) {
			t.Errorf("interrupted after %d steps: %+v, %v", done, id, err)
		}
	}
}
