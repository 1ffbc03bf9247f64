package eventlog_test

import (
	"bytes"
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/eventlog"
	"github.com/hostd/hostd/journal/store"
	"github.com/hostd/hostd/sharding"
)

func ptr[T any](v T) *T { return &v }

var rewrite = flag.Bool("rewrite", false, "write the golden files instead of comparing with them")

// The pairs of every class, as written by one flush.
func TestStoredFormats(t *testing.T) {
	st := openStore(t, filepath.Join(t.TempDir(), "store"), smallStore)
	m := openMachine(t, st, 0, eventlog.Options{
		Metadata: &registry{pairs: make(map[string]string)}, ClusterVersion: sharding.FirstVersion,
	})
	var chain journal.Chain
	first := record("alice", 0, journal.Hash{}, 2)
	first.Events[1].Tags = []string{"eu", "money"}
	second := record("alice", 2, chain.After(&first), 0)
	second.Flags = journal.FlagTombstone
	for i, data := range [][]byte{nil, entry(1, first, record("bob", 0, journal.Hash{}, 1)), entry(1, second)} {
		if v := apply1(m, 258, journal.Committed{Index: uint64(i + 1), Term: 1, Data: data}); v.Err != nil {
			t.Fatal(v.Err)
		}
	}
	if v := apply1(m, 258, journal.Committed{Index: 4, Term: 1, Data: journal.AppendBindingsEntry(nil, 1, 3, 5)}); v.Err != nil || v.Revision != 5 {
		t.Fatal(v.Err, v.Revision)
	}
	h := chain.After(ptr(record("bob", 0, journal.Hash{}, 1)))
	snap := journal.Snapshot{Entity: sharding.EntityID{Type: first.Entity.Type, ID: "bob"}, Sequence: 1, Hash: h, Keep: 2, State: []byte("state")}
	body := journal.AppendSnapshot(journal.AppendEntryHeader(nil, journal.EntrySnapshot, 1, 4), &snap)
	if v := apply1(m, 258, journal.Committed{Index: 5, Term: 1, Data: body}); v.Err != nil {
		t.Fatal(v.Err)
	}
	timed := record("carol", 0, journal.Hash{}, 0)
	ops := journal.AppendTimerOp(nil, journal.TimerOp{Name: []byte("expire"), Due: 5, Command: []byte("close"), Payload: []byte("{}")})
	ops = journal.AppendTimerOp(ops, journal.TimerOp{Name: bytes.Repeat([]byte("long "), 30), Due: 6, Command: []byte("open")})
	timed.Sections = []journal.Section{{Kind: journal.SectionTimers, Data: ops}}
	if v := apply1(m, 258, journal.Committed{Index: 6, Term: 1, Data: entry(1, timed)}); v.Err != nil {
		t.Fatal(v.Err)
	}
	refused := record("dave", 0, journal.Hash{}, 0)
	refused.Sections = []journal.Section{
		{Kind: journal.SectionSource, Data: journal.AppendMessageSource(nil, &journal.MessageSource{Type: []byte("cart"), ID: []byte("c"), Number: 1})},
		{Kind: journal.SectionMessages, Data: journal.AppendMessageOp(nil, &journal.MessageOp{Type: []byte("cart"), ID: []byte("d"), Command: []byte("pay"),
			OnReply: []byte("paid"), OnReject: []byte("unpaid"), Payload: []byte("{}")})},
		{Kind: journal.SectionRefusal, Data: journal.AppendRefusal(nil, &journal.Refusal{Code: []byte("no"), Message: []byte("never"), Command: []byte("open"), Payload: []byte("[]")})},
	}
	if v := apply1(m, 258, journal.Committed{Index: 7, Term: 1, Data: entry(1, refused)}); v.Err != nil || !v.Messages {
		t.Fatal(v.Err, v.Messages)
	}
	run := record("frank", 0, journal.Hash{}, 1)
	run.Sections = []journal.Section{{Kind: journal.SectionRun, Data: journal.AppendRunStatus(nil, &journal.RunStatus{State: journal.RunRunning, Steps: 2, Waits: []string{"sleep"}})}}
	if v := apply1(m, 258, journal.Committed{Index: 8, Term: 1, Data: entry(1, run)}); v.Err != nil {
		t.Fatal(v.Err)
	}
	lives := record("erin", 0, journal.Hash{}, 3)
	var many []byte
	for i := range 20 {
		many = journal.AppendTimerOp(many, journal.TimerOp{Name: fmt.Appendf(nil, "t%03d", i), Due: 7, Command: []byte("open")})
	}
	lives.Sections = []journal.Section{{Kind: journal.SectionTimers, Data: many}}
	lives.Flags = journal.FlagTombstone
	paced := func(r *journal.Record) []byte {
		return journal.AppendRecord(journal.AppendPacedHeader(nil, sharding.VersionPacedWork, journal.EntryRecords, 1, 1), r)
	}
	if v := apply1(m, 260, journal.Committed{Index: 1, Term: 1, Data: paced(&lives)}); v.Err != nil || v.Owing {
		t.Fatal(v.Err, v.Owing)
	}
	next := record("erin", 3, chain.After(&lives), 1)
	many = many[:0]
	for i := range 258 {
		many = journal.AppendTimerOp(many, journal.TimerOp{Name: fmt.Appendf(nil, "t%03d", i), Due: 8, Command: []byte("open")})
	}
	next.Sections = []journal.Section{{Kind: journal.SectionTimers, Data: many}}
	if v := apply1(m, 260, journal.Committed{Index: 2, Term: 1, Data: paced(&next)}); v.Err != nil {
		t.Fatal(v.Err)
	}
	ended := record("erin", 4, chain.After(&next), 1)
	ended.Flags = journal.FlagTombstone
	if v := apply1(m, 260, journal.Committed{Index: 3, Term: 1, Data: paced(&ended)}); v.Err != nil || !v.Owing {
		t.Fatal(v.Err, v.Owing)
	}
	meta := append(journal.AppendEntryHeader(nil, journal.EntryMeta, 1, 1), "key value"...)
	if v := apply1(m, 0, journal.Committed{Index: 1, Term: 1, Data: meta}); v.Err != nil {
		t.Fatal(v.Err)
	}
	flush(t, m, st)
	view, err := st.ViewAt(st.MaxVersion())
	if err != nil {
		t.Fatal(err)
	}
	defer view.Close()
	var b strings.Builder
	err = view.ScanRaw(func(key, value []byte) error {
		fmt.Fprintf(&b, "%s\nkey\n%svalue\n%s\n", store.DescribeKey(key), hex.Dump(key), hex.Dump(value))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join("testdata", "stored.txt")
	if *rewrite {
		if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if b.String() != string(want) {
		t.Errorf("the bytes on disk have changed; if that is meant, run with -rewrite.\n got:\n%s", b.String())
	}
}
