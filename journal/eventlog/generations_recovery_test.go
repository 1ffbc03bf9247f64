package eventlog_test

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/eventlog"
	"github.com/hostd/hostd/journal/statefile"
	"github.com/hostd/hostd/journal/store"
	"github.com/hostd/hostd/sharding"
)

// generationsRun has a machine whose only shard goes through several
// generations, a replica that is ahead of it and provides snapshots, and the
// content that the log would have after a crash.
type generationsRun struct {
	t     *testing.T
	base  string
	src   *source
	ahead *eventlog.Machine
	away  *store.Store // the store of ahead
	m     *eventlog.Machine
	st    *store.Store

	generation uint32
	began      *statefile.Install // snapshot that the current generation began with; nil if it began empty
	log        []logged           // entries of the current generation
	recorded   uint64
	crashes    int
	depths     [3]int // number of crashes in a generation without an install, before its install, and after it
}

// other starts a new history on the replica that is ahead.
func (r *generationsRun) other(seed uint64) {
	r.src = newSource(seed, 1, 30)
	r.away = openStore(r.t, filepath.Join(r.t.TempDir(), "away"), store.Options{})
	r.ahead = openMachine(r.t, r.away, 0, eventlog.Options{BlockBytes: 5000})
}

func (r *generationsRun) entry(behind bool) {
	id, c, want := r.src.next()
	checkVerdict(r.t, apply1(r.ahead, id, c), want)
	if behind {
		return
	}
	r.log = append(r.log, logged{id, c, want})
	r.m.Apply(1, []journal.Committed{c})
}

func (r *generationsRun) install() {
	for range 1 + r.src.rng.IntN(60) {
		r.entry(true)
	}
	flush(r.t, r.ahead, r.away)
	_, in := exported(r.t, r.ahead, 1)
	r.generation++
	r.began, r.log = &in, nil
	r.m.Install(1, r.generation, in)
}

func (r *generationsRun) drop(seed uint64) {
	r.generation++
	r.began, r.log = nil, nil
	r.m.Drop(1, r.generation)
	r.other(seed)
}

func (r *generationsRun) cut() {
	durable := map[sharding.ShardID]uint64{}
	r.recorded = r.m.Durable(durable)
	if index := durable[1]; r.began != nil && index != 0 && index < r.began.Index {
		r.t.Fatalf("index %d is called durable in a generation that begins behind %d", index, r.began.Index)
	} else if r.began == nil && index > uint64(len(r.log)) {
		r.t.Fatalf("index %d is called durable in a generation of %d entries", index, len(r.log))
	}
}

// crash recovers a copy of the store in the state in which a crash may leave
// it.
func (r *generationsRun) crash() {
	t := r.t
	dir := filepath.Join(r.base, "crashed")
	copyStore(t, filepath.Join(r.base, "live"), dir)
	name := crash(t, dir, r.crashes)
	r.crashes++
	opts := smallStore
	opts.Watermark = r.recorded
	st, err := store.Open(dir, opts)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	m, err := eventlog.Open(st, r.recorded, eventlog.Options{
		ClusterVersion: maxLevel,
		MaxEntityRows:  30, BlockBytes: 900, Generations: []statefile.Generation{{Shard: 1, Generation: r.generation, Install: r.began}},
	})
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	last := uint64(0)
	if r.began != nil {
		last = r.began.Index
	}
	last = max(last, logEnds(r.log)[1])
	if err := m.SetRecoveryTargets(map[sharding.ShardID]uint64{1: last}); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	at, _ := m.Applied(1)
	switch {
	case r.began == nil:
		r.depths[0]++
	case at == r.began.Index:
		r.depths[1]++
	case at < r.began.Index:
		t.Fatalf("%s: at %d in a generation that begins behind %d", name, at, r.began.Index)
	default:
		r.depths[2]++
	}
	for _, l := range r.log {
		if l.entry.Index > at {
			checkVerdict(t, apply1(m, 1, l.entry), l.want)
		}
	}
	if len(r.src.model.shards) > 0 && last == r.src.model.shards[1].index {
		checkMachine(t, m, r.src.model, r.src.rng)
	}
	work(t, m, st)
	report, err := st.Verify(t.Context(), store.Latest)
	if err != nil || report.Err() != nil || len(report.Generations) > 1 {
		t.Fatalf("%s: generations %+v: %v, %v", name, report.Generations, err, report.Err())
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
}

// A crash after any batch, among entries, installs, drops and the deletion of
// old generations, leaves the current generation as in the log, and in the end
// no other generation.
func TestRecoverGenerationsAtEveryBatch(t *testing.T) {
	if testing.Short() {
		t.Skip("short: no goroutine of ours takes part")
	}
	var all [3]int
	want := uint64(max(1, *seeds/10))
	// Whether Badger has finished a table when the crash happens depends on
	// timing, so further seeds may be needed.
	for seed := uint64(0); seed < want || seed < want+8 && slices.Contains(all[:], 0); seed++ {
		r := &generationsRun{t: t, base: t.TempDir()}
		r.other(seed + 1000)
		r.st = openStore(t, filepath.Join(r.base, "live"), smallStore)
		r.m = openMachine(t, r.st, 0, eventlog.Options{MaxEntityRows: 20, BlockBytes: 700})
		rng := r.src.rng
		for step := range min(3000, 300**seeds) {
			switch n := rng.IntN(100); {
			case n < 86:
				r.entry(false)
			case n < 87:
				if rng.IntN(4) == 0 {
					r.install()
				}
			case n < 88:
				if rng.IntN(8) == 0 {
					r.drop(seed*1000 + uint64(step))
				}
			case n < 94:
				r.m.Work()
			case n < 97:
				if b := r.m.TakeBatch(); b != nil {
					if rng.IntN(2) == 0 {
						r.entry(false) // while it is in flight
					}
					if err := b.Write(r.st); err != nil {
						t.Fatal(err)
					}
					r.m.MarkFlushed(b)
					if rng.IntN(3) == 0 {
						r.crash()
					}
				}
			default:
				r.cut()
			}
			if err := r.m.Err(); err != nil {
				t.Fatal(err)
			}
		}
		work(t, r.m, r.st)
		checkMachine(t, r.m, r.src.model, rng)
		for i := range all {
			all[i] += r.depths[i]
		}
	}
	if slices.Contains(all[:], 0) {
		t.Errorf("crashes without, before and after an install: %v", all)
	}
}
