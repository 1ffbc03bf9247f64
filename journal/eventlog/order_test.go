package eventlog_test

import (
	"errors"
	"math"
	"path/filepath"
	"testing"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/eventlog"
	"github.com/hostd/hostd/journal/store"
	"github.com/hostd/hostd/sharding"
)

// historyOf applies one entry with two records for each payload, and a no-op
// after each entry. It flushes either after each entry or never.
func historyOf(t *testing.T, level sharding.ClusterVersion, flushes bool, payloads ...string) (*eventlog.Machine, *store.Store) {
	t.Helper()
	st := openStore(t, filepath.Join(t.TempDir(), "store"), store.Options{})
	m := openMachine(t, st, 0, eventlog.Options{ClusterVersion: func() sharding.ClusterVersion { return level }})
	var chain journal.Chain
	heads := map[string]journal.Hash{}
	for i, payload := range payloads {
		body := journal.AppendEntryHeader(nil, journal.EntryRecords, 1, 1)
		for _, id := range []string{"a", "b"} {
			r := journal.Record{
				Entity: sharding.EntityID{Type: "t", ID: id}, Term: 1, RecordedAt: int64(i) + 1, Expected: journal.Sequence(i), Prev: heads[id],
				Events: []journal.Event{{Type: "e", Payload: []byte(payload)}},
			}
			heads[id] = chain.After(&r)
			body = journal.AppendRecord(body, &r)
		}
		for _, v := range m.Apply(1, []journal.Committed{{Index: uint64(2*i) + 1, Term: 1, Data: body}, {Index: uint64(2*i) + 2, Term: 1}}) {
			if v.Err != nil {
				t.Fatal(v.Err)
			}
		}
		if flushes {
			flush(t, m, st)
		}
	}
	return m, st
}

// places returns all places between the rows of the given number of entries.
func places(entries int) (all []eventlog.OrderPlace) {
	for index := range uint64(2*entries) + 1 {
		all = append(all, eventlog.OrderPlace{At: journal.Position{Index: index + 1}})
		if index%2 == 0 && index < uint64(2*entries) {
			at := journal.Position{Index: index + 1}
			all = append(all, eventlog.OrderPlace{At: at, Behind: true}, eventlog.OrderPlace{At: journal.Position{Index: index + 1, Ordinal: 1}},
				eventlog.OrderPlace{At: journal.Position{Index: index + 1, Ordinal: 1}, Behind: true})
		}
	}
	return all
}

// fingerprintAt returns the fingerprint for a reader that has reached a place.
func fingerprintAt(t *testing.T, m *eventlog.Machine, p eventlog.OrderPlace) uint32 {
	t.Helper()
	_, fingerprint, err := m.ReadOrderRange(t.Context(), 1, eventlog.OrderRange{From: p}, func(*eventlog.OrderRow) error { return errors.New("a row was read") })
	if err != nil {
		t.Fatal(err)
	}
	return fingerprint
}

// Two shards have equally many entries and records, and differ from the second
// entry on. A reader that has reached a place in one shard is rejected by the
// other shard if and only if their rows before that place differ.
func TestReadersOfDifferentHistoryAreRejected(t *testing.T) {
	for _, flushes := range []bool{false, true} {
		one, _ := historyOf(t, sharding.MaxVersion, flushes, "1", "2", "3")
		other, _ := historyOf(t, sharding.MaxVersion, !flushes, "1", "x", "3")
		for _, p := range places(3) {
			known := fingerprintAt(t, one, p)
			if known == 0 {
				t.Fatalf("%+v has no fingerprint", p)
			}
			same := p.At.Index <= 2 || p == eventlog.OrderPlace{At: journal.Position{Index: 3}}
			_, _, err := other.ReadOrderRange(t.Context(), 1, eventlog.OrderRange{From: p, Fingerprint: known, UpTo: math.MaxUint64}, func(*eventlog.OrderRow) error { return nil })
			if refused := errors.Is(err, journal.ErrOtherHistory); refused == same || err != nil && !refused {
				t.Errorf("%+v, the same before it %v: %v", p, same, err)
			}
		}
	}
}

// Replicas return equal fingerprints for each place, no matter whether they
// have flushed and from which replica they were installed.
func TestReplicasReturnEqualFingerprints(t *testing.T) {
	payloads := []string{"1", "2", "3", "4"}
	fresh, _ := historyOf(t, sharding.MaxVersion, false, payloads...)
	written, _ := historyOf(t, sharding.MaxVersion, true, payloads...)
	half, st := historyOf(t, sharding.MaxVersion, false, payloads...)
	flush(t, half, st)
	to := openStore(t, filepath.Join(t.TempDir(), "to"), store.Options{})
	installed := openMachine(t, to, 0, eventlog.Options{})
	_, in := exported(t, written, 1)
	installed.Install(1, 1, in)
	work(t, installed, to)
	for _, p := range places(len(payloads)) {
		want := fingerprintAt(t, fresh, p)
		for name, m := range map[string]*eventlog.Machine{"written": written, "written at once": half, "installed": installed} {
			if got := fingerprintAt(t, m, p); got != want {
				t.Errorf("%s: %+v is %x, want %x", name, p, got, want)
			}
		}
	}
	if first := fingerprintAt(t, installed, eventlog.OrderPlace{At: journal.Position{Index: 1}}); first != (journal.Hash{}).Fingerprint() {
		t.Errorf("before the first entry: %x", first)
	}
}

// Rows of an earlier cluster version are written in the form that earlier
// releases read, and match any reader.
func TestRowsOfEarlierVersionsHaveNoFingerprint(t *testing.T) {
	for _, flushes := range []bool{false, true} {
		m, _ := historyOf(t, sharding.Version2, flushes, "1", "2")
		for _, p := range places(2) {
			if p == (eventlog.OrderPlace{At: journal.Position{Index: 1}}) {
				continue // no row is before it
			}
			if got := fingerprintAt(t, m, p); got != 0 {
				t.Errorf("%+v is %x", p, got)
			}
			if _, _, err := m.ReadOrderRange(t.Context(), 1, eventlog.OrderRange{From: p, Fingerprint: 77}, func(*eventlog.OrderRow) error { return nil }); err != nil {
				t.Errorf("%+v: %v", p, err)
			}
		}
	}
}
