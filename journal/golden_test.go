package journal_test

import (
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files instead of comparing with them")

// records returns one record of every shape in the format, for the golden files
// and the round trips. Append new records at the end, because the golden files
// refer to records by number.
func records() []journal.Record {
	digest := func(b byte) (d [32]byte) {
		for i := range d {
			d[i] = b + byte(i)
		}
		return d
	}
	return []journal.Record{
		{
			Entity: sharding.EntityID{Type: "account", ID: "alice"}, Term: 3, RecordedAt: 1_700_000_000_000_000_000,
			Module: digest(7), CommandID: "c-1", CommandHash: 0x1122334455667788, Reply: []byte("ok"),
			Events: []journal.Event{{Type: "deposited", Payload: []byte(`{"amount":3}`), Tags: []string{"money", "eu"}}},
		},
		{
			Entity: sharding.EntityID{Type: "account", ID: "alice"}, Term: 4, RecordedAt: -1, Expected: 1,
			Prev: digest(1), Module: digest(7), CommandID: "c-2", Flags: journal.FlagServerID,
		},
		{
			Entity: sharding.EntityID{Type: "cart", ID: "ünïcode id"}, Term: 1 << 40, RecordedAt: 1, Expected: 1 << 33,
			Prev: digest(2), CommandID: journal.CommandID(strings.Repeat("x", journal.MaxCommandIDBytes)),
			Flags: journal.FlagTombstone, Reply: []byte{},
			Events: []journal.Event{{Type: "a"}, {Type: "b", Payload: []byte{0, 255}}, {Type: "c", Tags: []string{""}}},
		},
		{Entity: sharding.EntityID{Type: "t", ID: strings.Repeat("i", sharding.MaxEntityIDBytes)}},
		{
			Entity: sharding.EntityID{Type: "cart", ID: "c"}, Term: 2, RecordedAt: 5, CommandID: "timer", Sections: []journal.Section{
				{Kind: journal.SectionFuel, Data: []byte{1, 2, 0, 0, 0, 0, 0, 0}},
				{Kind: journal.SectionSource, Data: journal.AppendTimerSource(nil, journal.TimerSource{Name: []byte("expire"), Due: 1 << 60})},
				{Kind: journal.SectionTimers, Data: journal.AppendTimerOp(journal.AppendTimerOp(nil,
					journal.TimerOp{Name: []byte("expire"), Due: 1<<60 + 1, Command: []byte("close"), Payload: []byte("{}")}),
					journal.TimerOp{Name: []byte("remind"), Cancel: true})},
			},
		},
		{
			Entity: sharding.EntityID{Type: "transfer", ID: "t1"}, Term: 2, RecordedAt: 6, CommandID: "send-1", Sections: []journal.Section{
				{Kind: journal.SectionSource, Data: journal.AppendMessageSource(nil,
					&journal.MessageSource{Type: []byte("account"), ID: []byte("alice"), Number: 1<<33 + 1, After: 1 << 33})},
				{Kind: journal.SectionMessages, Data: journal.AppendMessageOp(journal.AppendMessageOp(nil,
					&journal.MessageOp{Type: []byte("account"), ID: []byte("bob"), Command: []byte("deposit"), OnReply: []byte("deposited"),
						OnReject: []byte("refused"), Payload: []byte(`{"amount":3}`)}),
					&journal.MessageOp{Type: []byte("ledger"), ID: []byte("l"), Command: []byte("note")})},
			},
		},
		{
			Entity: sharding.EntityID{Type: "account", ID: "bob"}, Term: 2, RecordedAt: 7, CommandID: "send-2", Sections: []journal.Section{
				{Kind: journal.SectionSource, Data: journal.AppendMessageSource(nil, &journal.MessageSource{Type: []byte("a"), ID: []byte("b"), Number: 7, After: 4})},
				{Kind: journal.SectionRefusal, Data: journal.AppendRefusal(nil,
					&journal.Refusal{Code: []byte("not_open"), Message: []byte("it is not open"), Command: []byte("deposit"), Payload: []byte("{}")})},
			},
		},
		{
			Entity: sharding.EntityID{Type: "account", ID: "bob"}, Term: 2, RecordedAt: 8, CommandID: "again", Sections: []journal.Section{
				{Kind: journal.SectionSource, Data: journal.AppendDeadLetterSource(nil, journal.ItemID{Index: 1 << 40, Ordinal: 3, Item: 2})},
			},
		},
		{
			Entity: sharding.EntityID{Type: "deed", ID: "d"}, Term: 2, RecordedAt: 9, CommandID: "take", Sections: []journal.Section{
				{Kind: journal.SectionFuel, Data: []byte{1, 0, 0, 0, 0, 0, 0, 0}},
				{Kind: journal.SectionPrincipal, Data: []byte("\x03\x00jwt\x02\x00bo\x05\x00staff")},
			},
		},
		{
			Entity: sharding.EntityID{Type: "deed", ID: "d"}, Term: 2, RecordedAt: 10, CommandID: "seen", Sections: []journal.Section{
				{Kind: journal.SectionFuel, Data: []byte{1, 0, 0, 0, 0, 0, 0, 0}},
				{Kind: journal.SectionTrace, Data: journal.AppendTraceContext(nil,
					&journal.TraceContext{Trace: [16]byte{1, 2, 15: 16}, Span: [8]byte{17, 18, 7: 24}, Flags: 1})},
			},
		},
		{
			Entity: sharding.EntityID{Type: "transfer", ID: "t2"}, Term: 2, RecordedAt: 11, CommandID: "begin", Sections: []journal.Section{
				{Kind: journal.SectionMessages, Data: journal.AppendMessageOp(journal.AppendMessageOp(nil,
					&journal.MessageOp{Type: []byte("ledger"), ID: []byte("l"), Command: []byte("note")}),
					&journal.MessageOp{Type: []byte("account"), ID: []byte("bob"), Command: []byte("deposit"), OnReply: []byte("deposited"), OnReject: []byte("refused")})},
				{Kind: journal.SectionTokens, Data: journal.AppendTokenOp(nil, journal.TokenOp{Item: 1, Token: []byte{0, 1, 2}})},
			},
		},
		{
			Entity: sharding.EntityID{Type: "transfer", ID: "t2"}, Term: 2, RecordedAt: 12, CommandID: "send-3", Sections: []journal.Section{
				{Kind: journal.SectionSource, Data: journal.AppendMessageSource(nil, &journal.MessageSource{Type: []byte("account"), ID: []byte("bob"), Number: 1})},
				{Kind: journal.SectionRefusal, Data: journal.AppendRefusal(nil,
					&journal.Refusal{Code: []byte("not_open"), Message: []byte("no"), Command: []byte("deposited"), Payload: []byte("{}"), Token: []byte{0, 1, 2}})},
			},
		},
		{
			Entity: sharding.EntityID{Type: "payout", ID: "p1"}, Term: 2, RecordedAt: 13, CommandID: "start", Sections: []journal.Section{
				{Kind: journal.SectionRun, Data: journal.AppendRunStatus(nil, &journal.RunStatus{State: journal.RunRunning, Steps: 2, Waits: []string{"wait approval", "sleep"}})},
			},
		},
		{
			Entity: sharding.EntityID{Type: "payout", ID: "p1"}, Term: 2, RecordedAt: 14, CommandID: "terminate", Sections: []journal.Section{
				{Kind: journal.SectionRun, Data: journal.AppendRunStatus(nil, &journal.RunStatus{State: journal.RunFailed, Steps: 3, Code: "terminated"})},
			},
		},
	}
}

// golden compares text with a file in testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *rewrite {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s: the bytes on disk have changed; if that is meant, run with -rewrite.\n got:\n%s\nwant:\n%s", name, got, want)
	}
}

func TestRecordBytes(t *testing.T) {
	var b strings.Builder
	for i, r := range records() {
		raw := journal.AppendRecord(nil, &r)
		if n := journal.RecordBytes(&r); n != len(raw) {
			t.Errorf("record %d: %d bytes, not %d", i, len(raw), n)
		}
		fmt.Fprintf(&b, "record %d\n%s", i, hex.Dump(raw))
	}
	golden(t, "records.txt", b.String())
}

func TestChainLinks(t *testing.T) {
	var b strings.Builder
	var chain journal.Chain
	for i, r := range records() {
		h := r.Prev
		for e := range r.Events {
			h = chain.Next(h, &r, e)
			fmt.Fprintf(&b, "record %d event %d: %s\n", i, e, h)
		}
		if after := chain.After(&r); after != h {
			t.Errorf("record %d: After is %s, its last Next %s", i, after, h)
		}
		fmt.Fprintf(&b, "record %d after: %s\n", i, h)
	}
	golden(t, "chain.txt", b.String())
}

func TestCommandHashes(t *testing.T) {
	var b strings.Builder
	var scratch []byte
	for _, c := range []struct{ name, payload string }{{"", ""}, {"deposit", `{"amount":3}`}, {"deposi", `t{"amount":3}`}} {
		var h uint64
		h, scratch = journal.HashCommand(scratch, c.name, []byte(c.payload))
		fmt.Fprintf(&b, "%q %q: %016x\n", c.name, c.payload, h)
	}
	golden(t, "commands.txt", b.String())
}

func TestEntryBytes(t *testing.T) {
	r := records()[1]
	b := journal.AppendEntryHeader(nil, journal.EntryRecords, 9, 1<<40+5)
	b = journal.AppendRecord(b, &r)
	m := append(journal.AppendEntryHeader(nil, journal.EntryMeta, 2, 1), "bind"...)
	r3 := journal.AppendBindingsEntry(nil, 4, 7, 1<<33+2)
	outbox := journal.AppendEntryHeader(nil, journal.EntryOutbox, 4, 8)
	for _, p := range []journal.OutboxOp{
		{Kind: journal.OutboxAcknowledged, ID: journal.ItemID{Index: 1 << 33, Ordinal: 2, Item: 1}},
		{
			Kind: journal.OutboxRefused, Source: journal.MessageSource{Type: []byte("transfer"), ID: []byte("t1"), Number: 3, After: 2},
			Type: []byte("ghost"), Entity: []byte("g"), At: 9, Command: []byte("boo"), OnReject: []byte("refused"),
			Code: []byte("not_found"), Message: []byte("no such type"), Answer: []byte("{}"), Payload: []byte("[1]"),
		},
		{Kind: journal.OutboxDiscarded, ID: journal.ItemID{Index: 7}},
		{Kind: journal.OutboxGivenUp, ID: journal.ItemID{Index: 8, Item: 1}, At: 10, Code: []byte("not_found"), Message: []byte("no such type"), Answer: []byte("{}")},
		{Kind: journal.OutboxSentAgain, ID: journal.ItemID{Index: 9}},
		{
			Kind: journal.OutboxRefusedToken, Source: journal.MessageSource{Type: []byte("transfer"), ID: []byte("t1"), Number: 4, After: 3},
			Type: []byte("ghost"), Entity: []byte("g"), At: 9, Command: []byte("boo"), OnReject: []byte("refused"),
			Code: []byte("not_found"), Message: []byte("no such type"), Answer: []byte("{}"), Token: []byte{0, 1, 2},
		},
	} {
		outbox = journal.AppendOutboxOp(outbox, &p)
	}
	paced := journal.AppendPacedHeader(nil, sharding.VersionPacedWork, journal.EntryRecords, 9, 1<<40+6)
	work := journal.AppendPacedHeader(nil, sharding.VersionPacedWork, journal.EntryWork, 4, 10)
	proof := journal.AppendProofEntry(nil, 4, 9, &journal.Proof{Index: 1<<33 + 1024, Checksum: journal.RowsDigest{1, 2, 15: 16}})
	golden(t, "entries.txt", "records\n"+hex.Dump(b)+"metadata\n"+hex.Dump(m)+"bindings\n"+hex.Dump(r3)+"post\n"+hex.Dump(outbox)+"proof\n"+hex.Dump(proof)+"paced records\n"+hex.Dump(paced)+"work\n"+hex.Dump(work))
	s := journal.Snapshot{
		Entity: sharding.EntityID{Type: "account", ID: "alice"}, Sequence: 9, Hash: journal.Hash(records()[1].Prev),
		Module: records()[0].Module, Window: 3, Keep: 2, Filter: []byte{1, 2, 4, 8}, FilterIDs: 5, State: []byte(`{"balance":3}`),
	}
	raw := journal.AppendSnapshot(nil, &s)
	golden(t, "snapshots.txt", hex.Dump(raw))
	var got journal.Snapshot
	if err := got.Decode(raw); err != nil || string(got.State) != string(s.State) || got.Window != 3 || got.Entity != s.Entity || got.Hash != s.Hash || got.Module != s.Module {
		t.Errorf("%+v %v", got, err)
	}
	for i := range raw {
		flipped := append([]byte(nil), raw...)
		flipped[i] ^= 4
		if err := got.Decode(flipped); err == nil {
			t.Errorf("a flipped bit in byte %d is not seen", i)
		}
	}
}
