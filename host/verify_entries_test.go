package host_test

import (
	"encoding/binary"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hostd/hostd/host/offline"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/disk"
	"github.com/hostd/hostd/journal/raftgroup/recovery"
	"github.com/hostd/hostd/journal/raftgroup/wire"
	"github.com/hostd/hostd/journal/wal"
	"github.com/hostd/hostd/sharding"
)

// TestVerifyNamesUnreadableEntries appends invalid entries to a log, in records
// that are intact. Earlier releases accepted such entries from peers. A replica
// would stop at each of them when the node starts, so verify must name each.
func TestVerifyNamesUnreadableEntries(t *testing.T) {
	const normal, members = 0, 2
	metadata := func(fence sharding.Term, body string) []byte {
		return append(journal.AppendEntryHeader(nil, journal.EntryMeta, fence, 1), body...)
	}
	tests := []struct {
		name  string
		shard sharding.ShardID
		kind  byte
		data  func(term sharding.Term) []byte
		says  string // empty: the entry is valid
	}{
		{"data", 1, normal, func(sharding.Term) []byte { return []byte("garbage") }, "entry with 7 bytes"},
		{"data of a later release", 1, normal, func(term sharding.Term) []byte { return journal.AppendEntryHeader(nil, 99, term, 1) }, "entry kind 99"},
		{"members", 2, members, func(sharding.Term) []byte { return []byte("garbage") }, "membership change: "},
		{"metadata", sharding.MetaShard, normal, func(term sharding.Term) []byte { return metadata(term, "garbage") }, "not a command of version"},
		{"metadata of an earlier leader", sharding.MetaShard, normal, func(term sharding.Term) []byte { return metadata(term-1, "garbage") }, ""},
		{"a leader's first entry", 1, normal, func(sharding.Term) []byte { return nil }, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			n, _ := start(t, dir)
			stop(t, n)
			var out strings.Builder
			if faults, err := offline.Verify(t.Context(), dir, &out); faults != 0 || err != nil {
				t.Fatalf("%d faults before: %v\n%s", faults, err, &out)
			}
			index := appendEntry(t, filepath.Join(dir, "wal"), tt.shard, tt.kind, tt.data)
			out.Reset()
			faults, err := offline.Verify(t.Context(), dir, &out)
			if err != nil {
				t.Fatal(err)
			}
			line := fmt.Sprintf("FAULT wal: entry %d of shard %d: ", index, tt.shard)
			if tt.says == "" && (faults != 0 || strings.Contains(out.String(), "FAULT")) {
				t.Errorf("%d faults, want none:\n%s", faults, &out)
			}
			if _, after, found := strings.Cut(out.String(), line); tt.says != "" && (faults != 1 || !found || !strings.Contains(after, tt.says)) {
				t.Errorf("%d faults, want %q and %q:\n%s", faults, line, tt.says, &out)
			}
		})
	}
}

// appendEntry appends an entry to the log of a shard of a stopped node. The
// record is a turn as described in journal/raftgroup/FORMAT.md.
func appendEntry(t *testing.T, dir string, shard sharding.ShardID, kind byte, data func(sharding.Term) []byte) (index uint64) {
	t.Helper()
	log, err := wal.Open(disk.OS{}, dir, wal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	rec, err := recovery.Recover(log)
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range rec.Groups {
		if g.Shard != shard {
			continue
		}
		index = g.LastIndex + 1
		le, entry := binary.LittleEndian, data(g.Term)
		b := le.AppendUint32([]byte{1}, uint32(shard))
		b = le.AppendUint64(b, uint64(g.Replica))
		b = append(b, 1<<2) // only entries
		b = le.AppendUint64(b, index)
		b = le.AppendUint32(b, 1)
		b = le.AppendUint64(b, uint64(g.Term))
		b = append(b, kind)
		b = le.AppendUint32(b, uint32(len(entry)))
		if _, err := log.Append(wire.KindTurn, append(b, entry...)); err != nil {
			t.Fatal(err)
		}
	}
	if index == 0 {
		t.Fatalf("no replica of shard %d", shard)
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	return index
}
