package eventlog_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/eventlog"
	"github.com/hostd/hostd/journal/statefile"
	"github.com/hostd/hostd/journal/store"
	"github.com/hostd/hostd/sharding"
)

// older is a metadata state machine of a release that does not know a key.
type older struct {
	registry
	unknown string
}

func (o *older) Replace(index uint64, restore func(put func(key, value []byte) error) error) error {
	next := registry{pairs: make(map[string]string)}
	if err := next.Replace(index, restore); err != nil {
		return err
	}
	if _, there := next.pairs[o.unknown]; there {
		return fmt.Errorf("%w: key %q", journal.ErrUnsupported, o.unknown)
	}
	o.pairs = next.pairs
	return nil
}

// A metadata snapshot that only a later release can read stops the metadata
// replica with a clear error while the node runs: the replica keeps its state
// and applies nothing more, and other shards continue. The next start of the
// node fails.
func TestUnsupportedMetadataStopsItsReplica(t *testing.T) {
	newer := openStore(t, filepath.Join(t.TempDir(), "newer"), store.Options{})
	a := openMachine(t, newer, 0, eventlog.Options{Metadata: &registry{pairs: make(map[string]string)}})
	command := func(index uint64, words string) journal.Committed {
		return journal.Committed{Index: index, Term: 1, Data: append(journal.AppendEntryHeader(nil, journal.EntryMeta, 1, index), words...)}
	}
	for i, words := range []string{"known 1", "later 2"} {
		if v := apply1(a, 0, command(uint64(i+1), words)); v.Err != nil {
			t.Fatal(v.Err)
		}
	}
	flush(t, a, newer)
	_, in := exported(t, a, sharding.MetaShard)

	dir := filepath.Join(t.TempDir(), "older")
	st := openStore(t, dir, store.Options{})
	var told []eventlog.Stopped
	knows := &older{registry{map[string]string{}}, "later"}
	b := openMachine(t, st, 0, eventlog.Options{Metadata: knows, Stopped: func(s eventlog.Stopped) { told = append(told, s) }})
	if v := apply1(b, 0, command(1, "mine 1")); v.Err != nil {
		t.Fatal(v.Err)
	}
	b.Install(sharding.MetaShard, 1, in)
	if v := b.Apply(sharding.MetaShard, []journal.Committed{command(3, "waits 3")}); len(v) != 0 {
		t.Fatalf("verdicts under an install: %+v", v)
	}
	var installed *eventlog.Installed
	var verdicts []eventlog.ApplyResult
	for b.Err() == nil && (b.HasWork() || b.HasPending()) {
		s := b.Work()
		verdicts = append(verdicts, s.Verdicts...)
		if s.Installed != nil {
			installed = s.Installed
		}
		if !b.HasWork() {
			flush(t, b, st)
		}
	}
	if err := b.Err(); err != nil {
		t.Fatalf("the machine has failed: %v", err)
	}
	if installed == nil || !errors.Is(installed.Err, journal.ErrUnsupported) || !strings.Contains(installed.Err.Error(), `"later"`) {
		t.Fatalf("installed: %+v", installed)
	}
	if len(told) != 1 || told[0].Shard != sharding.MetaShard || told[0].Generation != 1 || told[0].Reason() != sharding.StopUnsupported {
		t.Errorf("told of %+v", told)
	}
	if len(verdicts) != 1 || !errors.Is(verdicts[0].Err, eventlog.ErrStopped) {
		t.Errorf("what waited: %+v", verdicts)
	}
	if v := apply1(b, 0, command(4, "next 4")); !errors.Is(v.Err, eventlog.ErrStopped) || knows.pairs["mine"] != "1" || len(knows.pairs) != 1 {
		t.Errorf("after the stop: %+v, it knows %v", v, knows.pairs)
	}
	if v := apply1(b, 1, journal.Committed{Index: 1, Term: 1, Data: entry(1, record("a", 0, journal.Hash{}, 1))}); v.Err != nil {
		t.Errorf("another shard: %v", v.Err)
	}
	flush(t, b, st)
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	st = openStore(t, dir, store.Options{})
	generations := []statefile.Generation{{Shard: sharding.MetaShard, Generation: 1}}
	m, err := eventlog.Open(st, st.MaxVersion()-1, eventlog.Options{Metadata: knows, Generations: generations})
	if err == nil {
		err = m.SetRecoveryTargets(map[sharding.ShardID]uint64{})
	}
	if !errors.Is(err, journal.ErrUnsupported) {
		t.Errorf("the next start: %v", err)
	}
}
