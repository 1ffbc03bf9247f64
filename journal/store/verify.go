package store

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"math"

	"github.com/dgraph-io/badger/v4"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// Latest stands for the highest version in a store that was closed in peace.
const Latest uint64 = math.MaxUint64

// MaxProblems bounds the problems that a Report lists.
const MaxProblems = 1000

// Report is what a Verify found.
type Report struct {
	Version   uint64 // the store was verified as of it
	Shards    int
	Lives     []Life // of the shards, leftovers too
	Leftovers uint64 // pairs of lives that are incomplete by right
	Entities  uint64 // heads, deleted ones too
	Records   uint64
	Events    uint64
	OrderRows uint64
	Snapshots uint64 // of entities
	Timers    uint64
	Sends     uint64 // not acknowledged
	Letters   uint64 // dead ones
	Pairs     uint64 // of all classes
	Bytes     uint64 // of all values
	Problems  []DamageError
	More      int // problems beyond MaxProblems
}

// Err is nil when there is no problem, else the first, with the number of all.
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

// VerifyDir verifies the store of a stopped node as of a version: the
// watermark that its log recorded, or Latest after a clean stop. It reads only,
// unless a crash left the directory in a state that Badger has to mend first,
// as the next start would. The error is about reading; what is wrong with the
// data is in the Report.
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

// Verify reads everything as of the version and checks each value's and each
// record's checksum, that every entity's records chain from the first to its
// head, that the order packs list the same records, and that each shard's
// applied mark agrees. It holds one entity's pack in memory at a time.
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
	if err := v.findLives(); err != nil {
		return nil, fmt.Errorf("verify journal store: %w", err)
	}
	if err := view.scan(nil, nil, v.item); err != nil {
		return nil, fmt.Errorf("verify journal store: %w", err)
	}
	v.endEntity()
	v.endShard()
	return &v.Report, nil
}

// verifier takes the pairs in key order: for each shard its mark, the heads,
// the metadata, the order packs, then the records of one entity after another.
type verifier struct {
	Report
	ctx  context.Context
	view *View

	leftover func(sharding.ShardID, uint32) bool

	shard   sharding.ShardID
	life    uint32
	any     bool // shard and life are set
	skip    bool // the life is a leftover
	marked  bool
	mark    Applied
	heads   uint64
	living  uint64
	listed  uint64 // snapshots, by the heads
	found   uint64 // snapshots
	set     uint64 // timers, by the heads
	timers  uint64
	dues    uint64
	sends   sendCounts
	cuts    map[string]*Cut // of the shard's entities that have one, as keys hold them
	ordered uint64          // index of the last order pack
	order   fingerprint     // of the rows
	records fingerprint     // of the records with events

	entity  []byte // as keys hold it; nil between entities
	cut     *Cut   // of the entity
	at      journal.Position
	seq     journal.Sequence
	hash    journal.Hash
	count   uint64
	bytes   uint64
	deleted bool
	resting bool
	broken  bool // a problem of the entity is reported: say no more of it
	chain   journal.Chain
	rec     journal.RecordView
}

// fingerprint of a set of rows, whatever their order.
type fingerprint struct{ n, sum uint64 }

func (f *fingerprint) add(at journal.Position, typ, id []byte, first journal.Sequence, events int) {
	h := fnv.New64a()
	var b [32]byte
	binary.LittleEndian.PutUint64(b[:], at.Index)
	binary.LittleEndian.PutUint32(b[8:], at.Ordinal)
	binary.LittleEndian.PutUint64(b[12:], uint64(first))
	binary.LittleEndian.PutUint64(b[20:], uint64(events))
	h.Write(b[:])
	h.Write(typ)
	h.Write([]byte{0})
	h.Write(id)
	f.n++
	f.sum += h.Sum64()
}

func (v *verifier) item(item *badger.Item) error {
	if err := v.ctx.Err(); err != nil {
		return err
	}
	key := item.Key()
	k, err := ParseKey(key)
	if err != nil {
		v.problem("keys", "a key that no release has written")
		return nil
	}
	if !v.any || k.Shard != v.shard || k.Generation != v.life {
		v.endEntity()
		v.endShard()
		v.beginShard(k.Shard, k.Generation)
	}
	if v.skip {
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
		if err != nil {
			v.problem(DescribeKey(key), "%v", err)
			v.broken = k.Class == ClassRecord
		}
		return nil
	})
}

func (v *verifier) pair(k Key, body []byte) error {
	switch k.Class {
	case ClassApplied:
		a, err := DecodeApplied(body)
		v.mark, v.marked = a, err == nil
		return err
	case ClassEntity:
		h, err := DecodeHead(body)
		if err != nil {
			return err
		}
		v.heads++
		if !h.Deleted {
			v.living++
		}
		v.noteCut(k.Rest, h.Cut)
		v.listed += uint64(h.Snapshots.Len())
		v.set += uint64(h.Timers)
		v.Entities++
		v.headTimers(k, h.Set)
		return nil
	case ClassOrder:
		return v.orderPack(k, body)
	case ClassRecord:
		return v.recordPack(k, body)
	case ClassSnapshot:
		v.found++
		v.Snapshots++
		return v.snapshot(k, body)
	case ClassTimer:
		v.timers++
		v.Timers++
		return v.timer(k, body)
	case ClassDue:
		v.dues++
		return v.dueTimer(k, body)
	case ClassImport:
		_, err := DecodeImport(body)
		return err
	case ClassOutbox, ClassInbox, ClassCount, ClassLetter:
		return v.sendPair(k, body)
	}
	return nil
}

func (v *verifier) beginShard(id sharding.ShardID, life uint32) {
	if v.skip = v.isLeftover(id, life); !v.skip {
		v.Shards++
	}
	v.shard, v.life, v.any, v.marked, v.mark = id, life, true, false, Applied{}
	v.heads, v.living, v.ordered, v.listed, v.found = 0, 0, 0, 0, 0
	v.set, v.timers, v.dues, v.sends = 0, 0, 0, sendCounts{}
	v.order, v.records, v.cuts = fingerprint{}, fingerprint{}, nil
}

func (v *verifier) endShard() {
	if !v.any || v.skip {
		return
	}
	where := fmt.Sprintf("shard %d", v.shard)
	switch {
	case !v.marked:
		v.problem(where, "it has no readable applied mark")
		return
	case v.mark.Heads != v.heads || v.mark.Entities != v.living:
		v.problem(where, "%d entity heads, %d of them existing; its applied mark counts %d and %d",
			v.heads, v.living, v.mark.Heads, v.mark.Entities)
	case v.mark.Ordered != v.ordered:
		v.problem(where, "its order ends at index %d; its applied mark says %d", v.ordered, v.mark.Ordered)
	case v.listed != v.found:
		v.problem(where, "%d snapshots of entities, their heads list %d", v.found, v.listed)
	case v.set != v.timers || v.set != v.dues:
		v.problem(where, "%d timers, %d by due time; the entity heads count %d", v.timers, v.dues, v.set)
	}
	v.endSends(where)
	if v.order != v.records {
		v.problem(where, "its order lists %d records with events, its entities have %d, or others", v.order.n, v.records.n)
	}
}

func (v *verifier) orderPack(k Key, body []byte) error {
	p, err := OpenOrderPack(body)
	if err != nil {
		return err
	}
	if p.Previous != v.ordered {
		v.problem(fmt.Sprintf("order of shard %d", v.shard), "a pack follows index %d, the one before it ends at %d", p.Previous, v.ordered)
	}
	var row OrderRow
	for {
		more, err := p.Next(&row)
		if err != nil {
			return err
		}
		if !more {
			break
		}
		v.OrderRows++
		if !v.wasCut(&row) {
			v.order.add(row.At, row.Type, row.ID, row.First, row.Events)
		}
	}
	if len(k.Rest) != 8 || binary.BigEndian.Uint64(k.Rest) != row.At.Index {
		return fmt.Errorf("%w: an order pack is not under its last index", journal.ErrDamaged)
	}
	v.ordered = row.At.Index
	return nil
}

func (v *verifier) recordPack(k Key, body []byte) error {
	if len(k.Rest) < recordSuffixBytes {
		return fmt.Errorf("%w: a record key is short", journal.ErrDamaged)
	}
	entity := k.Rest[:len(k.Rest)-recordSuffixBytes]
	if !bytes.Equal(entity, v.entity) {
		v.endEntity()
		v.entity = append([]byte{}, entity...)
		v.at, v.seq, v.hash, v.count, v.bytes, v.deleted, v.resting, v.broken = journal.Position{}, 0, journal.Hash{}, 0, 0, false, false, false
		v.beginAtCut()
	}
	p, err := OpenPack(body)
	if err != nil {
		return err
	}
	if p.Previous != v.at && !v.straddles(p.Previous) {
		v.entityProblem("a pack does not follow the pack before it")
	}
	for {
		at, raw, err := p.Next()
		if err != nil {
			return err
		}
		if raw == nil {
			break
		}
		if err := v.record(at, raw); err != nil {
			return err
		}
	}
	if !bytes.Equal(AppendRecordSuffix(nil, v.seq, v.at), k.Rest[len(entity):]) {
		return fmt.Errorf("%w: a record pack is not under its last record", journal.ErrDamaged)
	}
	return nil
}

func (v *verifier) record(at journal.Position, raw []byte) error {
	if err := v.rec.Parse(raw); err != nil {
		return err
	}
	r := &v.rec
	if !bytes.Equal(AppendEntity(nil, r.Type, r.ID), v.entity) {
		return fmt.Errorf("%w: a record of another entity", journal.ErrDamaged)
	}
	if v.cut != nil && !v.cut.Last.Less(at) {
		return nil // it was cut, and is in a pack with records that were not
	}
	if r.Expected != v.seq || r.Prev != v.hash || !v.at.Less(at) {
		v.entityProblem("a record does not follow the one before it")
	}
	v.at, v.seq, v.hash = at, r.Last(), v.chain.AfterView(r.Prev, r)
	v.deleted, v.resting = r.Flags&journal.FlagTombstone != 0, r.Flags&journal.FlagResting != 0
	v.count++
	v.bytes += uint64(len(raw))
	v.Records++
	v.Events += uint64(r.EventCount)
	if r.EventCount > 0 {
		v.records.add(at, r.Type, r.ID, r.Expected+1, r.EventCount)
	}
	return nil
}

// endEntity compares the entity's records with its head.
func (v *verifier) endEntity() {
	if v.entity == nil {
		return
	}
	key := append(AppendPrefix(nil, v.shard, v.life, ClassEntity), v.entity...)
	var h Head
	found, err := v.view.Get(key, func(body []byte) (err error) {
		h, err = DecodeHead(body)
		return err
	})
	switch {
	case err != nil:
		// Its pair is reported already.
	case !found:
		v.entityProblem("its records have no head")
	case h.Sequence != v.seq || h.Hash != v.hash || h.Last != v.at || h.Deleted != v.deleted || h.Resting != v.resting || h.Records != v.count || h.Bytes != v.bytes || h.Last.Less(h.Stands):
		v.entityProblem("its records end at sequence %d, its head is at %d, or they differ otherwise", v.seq, h.Sequence)
	}
	v.entity = nil
}

func (v *verifier) entityProblem(format string, args ...any) {
	if !v.broken {
		v.problem(fmt.Sprintf("an entity of shard %d", v.shard), format, args...)
	}
	v.broken = true
}
