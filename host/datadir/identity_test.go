package datadir

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hostd/hostd/sharding"
)

func TestDirectoriesOfOtherClusterVersions(t *testing.T) {
	for _, tt := range []struct {
		format string
		says   string // empty: it opens
	}{
		{"1", ""}, {"2", ""}, {"3", ""}, {"0", "cluster version 0"}, {"4", "cluster version 4, this release supports cluster versions 1 to 3"},
	} {
		dir := t.TempDir()
		text := `{"format": ` + tt.format + `, "nodeId": "n1", "diskId": "d", "clusterId": "c", "shards": 8, "metaReplica": 1}`
		if err := os.WriteFile(filepath.Join(dir, IdentityFile), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		id, err := Open(dir, "n1", time.Now())
		switch {
		case tt.says == "" && (err != nil || strings.Contains(tt.format, "1") != (id.Format == sharding.Version1)):
			t.Errorf("format %s: opened as %d, %v", tt.format, id.Format, err)
		case tt.says != "" && (err == nil || !strings.Contains(err.Error(), tt.says)):
			t.Errorf("format %s: %v", tt.format, err)
		}
	}
}

// Processes that are started under one name in the same millisecond get
// different incarnations, so that one of them is later. Each time that a
// node starts again, its incarnation is later than its previous one,
// whatever the clock says.
func TestFirstStartsDiffer(t *testing.T) {
	now := time.UnixMilli(1_700_000_000_000)
	seen := map[uint64]bool{}
	for range 8 {
		dir := t.TempDir()
		id, err := Open(dir, "n1", now)
		if err != nil {
			t.Fatal(err)
		}
		if ahead := id.Incarnation - uint64(now.UnixMilli()); ahead >= maxAhead || id.Requested < id.Incarnation {
			t.Errorf("the first start is %d, %d ahead of the clock; %d is asked about", id.Incarnation, ahead, id.Requested)
		}
		seen[id.Incarnation] = true
		again, err := Open(dir, "n1", now)
		if err != nil || again.Incarnation != id.Incarnation+1 {
			t.Errorf("the start after %d is %d, %v", id.Incarnation, again.Incarnation, err)
		}
	}
	if len(seen) < 2 {
		t.Errorf("all first starts are %v", seen)
	}
}
