package store

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/dgraph-io/badger/v4"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// Latest stands for the highest version in a cleanly closed store.
const Latest uint64 = math.MaxUint64

// MaxProblems bounds the problems listed in a Report.
const MaxProblems = 1000

// Report is the result of Verify.
type Report struct {
	Version     uint64 // the version that was verified
	Shards      int
	Generations []Generation // generations of the shards, including leftovers
	Leftovers   uint64       // number of pairs in generations that may be incomplete
	Entities    uint64       // entity rows, including deleted ones
	Records     uint64
	Events      uint64
	OrderRows   uint64
	Snapshots   uint64 // number of entities' snapshots
	Timers      uint64
	Messages    uint64 // number of unacknowledged messages
	DeadLetters uint64
	Pairs       uint64 // number of pairs of all classes
	Bytes       uint64 // size of all values
	Problems    []DamageError
	More        int // problems beyond MaxProblems
}

// Err returns nil if there is no problem. Otherwise it returns the first
// problem and the total number of problems.
func (r *Report) Err() error {
	if len(r.Problems) == 0 {
		return nil
	}
	return fmt.Errorf("%d problems, the first: %w", len(r.Problems)+r.More, &r.Problems[0])
}

func (r *Report) problem(where, format string, args ...any) {
	if len(r.Problems) == MaxProblems {
		r.More++
		return
	}
	r.Problems = append(r.Problems, DamageError{Where: where, What: fmt.Sprintf(format, args...)})
}

// VerifyDir verifies the store of a stopped node as of a version: the watermark
// recorded in its log, or Latest after a clean stop. It only reads, unless a
// crash left the directory in a state that Badger has to repair first, as the
// next start would. The error is set if reading failed; problems with the data
// are in the Report.
func VerifyDir(ctx context.Context, dir string, version uint64, opts Options) (*Report, error) {
	opts.ReadOnly = true
	if version != Latest {
		opts.Watermark = version
	}
	st, err := Open(dir, opts)
	var damage *DamageError
	if errors.As(err, &damage) {
		return &Report{Version: version, Problems: []DamageError{*damage}}, nil
	}
	if err != nil {
		opts.ReadOnly = false
		if st, err = Open(dir, opts); err != nil {
			return nil, err
		}
	}
	r, err := st.Verify(ctx, version)
	return r, errors.Join(err, st.Close())
}

// Verify reads everything as of the version. It verifies the checksum of each
// value and record, that the records of every entity form a hash chain that
// ends at its entity row, that the order blocks list the same records, and that
// each shard's applied state matches. It holds one block in memory at a time.
func (s *Store) Verify(ctx context.Context, version uint64) (*Report, error) {
	if version == Latest {
		version = s.MaxVersion()
	}
	view, err := s.ViewAt(version)
	if err != nil {
		return nil, err
	}
	defer view.Close()
	v := &verifier{ctx: ctx, view: view, leftover: s.opts.Leftover, Report: Report{Version: version}}
	if err := v.findGenerations(); err != nil {
		return nil, fmt.Errorf("verify journal store: %w", err)
	}
	if err := view.scan(badger.IteratorOptions{}, nil, v.item); err != nil {
		return nil, fmt.Errorf("verify journal store: %w", err)
	}
	v.endEntity()
	v.endGeneration()
	return &v.Report, nil
}

// verifier processes the pairs in key order: for each generation of a shard the
// applied state, the entity rows, the metadata, the order blocks, then the
// records entity by entity.
type verifier struct {
	Report
	ctx      context.Context
	view     *View
	leftover func(sharding.ShardID, uint32) bool

	generation generationCheck // whose pairs are being read
	entity     entityCheck     // whose records are being read
	hasher     RowHasher
	chain      journal.Chain
	rec        journal.RecordView
}

func (v *verifier) item(item *badger.Item) error {
	if err := v.ctx.Err(); err != nil {
		return err
	}
	key := item.Key()
	k, err := ParseKey(key)
	if err != nil {
		v.problem("keys", "a key of an unknown format")
		return nil
	}
	if g := &v.generation; !g.begun || k.Shard != g.shard || k.Generation != g.number {
		v.endEntity()
		v.endGeneration()
		v.generation = generationCheck{begun: true, shard: k.Shard, number: k.Generation, leftover: v.isLeftover(k.Shard, k.Generation)}
		if !v.generation.leftover {
			v.Shards++
		}
	}
	if v.generation.leftover {
		v.Leftovers++
		return nil
	}
	v.Pairs++
	return item.Value(func(value []byte) error {
		v.Bytes += uint64(len(value))
		body, err := openValue(key, value)
		if err == nil {
			err = v.pair(k, body)
		}
		if err == nil {
			err = v.hasher.AddTo(&v.generation.sums, k, body)
		}
		if err != nil {
			v.problem(DescribeKey(key), "%v", err)
			v.entity.broken = k.Class == ClassRecord
		}
		return nil
	})
}

func (v *verifier) pair(k Key, body []byte) error {
	g := &v.generation
	switch k.Class {
	case ClassApplied:
		a, err := DecodeApplied(body)
		g.mark, g.marked = a, err == nil
		return err
	case ClassEntity:
		h, err := DecodeHead(body)
		if err != nil {
			return err
		}
		g.head(k.Suffix, &h)
		v.Entities++
		v.headTimers(k, &h)
		return nil
	case ClassOrder:
		return v.orderPack(k, body)
	case ClassRecord:
		return v.recordPack(k, body)
	case ClassSnapshot:
		g.found++
		v.Snapshots++
		return v.snapshot(k, body)
	case ClassTimer:
		g.timers++
		return v.timer(k, body)
	case ClassDue:
		g.dues++
		return v.dueTimer(k, body)
	case ClassImport:
		_, err := DecodeImport(body)
		return err
	case ClassRun:
		return v.openRun(k, body)
	case ClassOutbox, ClassInbox, ClassCount, ClassDeadLetter:
		return v.messagePair(k, body)
	}
	return nil
}

// endGeneration compares the generation's rows with its applied state.
func (v *verifier) endGeneration() {
	g := &v.generation
	if !g.begun || g.leftover {
		return
	}
	where := fmt.Sprintf("shard %d", g.shard)
	g.reportMismatches(func(format string, args ...any) { v.problem(where, format, args...) })
}

// findGenerations lists the generations before their pairs are verified. An
// unreadable applied state is reported later, with its pair.
func (v *verifier) findGenerations() (err error) {
	v.Generations, err = v.view.Generations()
	if errors.Is(err, journal.ErrDamaged) {
		return nil
	}
	return err
}

// isLeftover reports whether a generation may be incomplete: it has no applied
// state, and either the log shows that it is not needed or, if the log is
// unknown, the shard has a different generation with an applied state.
func (v *verifier) isLeftover(shard sharding.ShardID, generation uint32) bool {
	other := false
	for i := range v.Generations {
		l := &v.Generations[i]
		if l.Shard != shard || !l.Marked {
			continue
		}
		if l.Generation == generation {
			return false
		}
		other = true
	}
	if v.leftover != nil {
		return v.leftover(shard, generation)
	}
	return other
}
