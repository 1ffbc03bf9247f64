package store

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/hostd/hostd/journal"
)

// entityCheck tracks the records of one entity: each record must follow the
// previous record, from the first record or from the truncation point on, and
// the last record must match the entity row.
type entityCheck struct {
	key     []byte // encoded as in keys; nil between entities
	cut     *Cut   // start of the entity's records; nil if none were truncated
	at      journal.Position
	seq     journal.Sequence
	hash    journal.Hash
	count   uint64
	bytes   uint64
	deleted bool
	stopped bool
	broken  bool // a problem of the entity has already been reported
}

// beginEntity starts checking an entity's records after its truncation point.
func beginEntity(key []byte, c *Cut) entityCheck {
	e := entityCheck{key: key, cut: c}
	if c != nil {
		e.at, e.seq, e.hash = c.Last, c.Sequence, c.Hash
	}
	return e
}

// straddles reports whether a block that follows a record before the truncation
// point may contain the first remaining record.
func (e *entityCheck) straddles(previous journal.Position) bool {
	return e.cut != nil && e.count == 0 && previous.Less(e.cut.Last)
}

// isCompacted reports whether the record at a position was compacted.
func (e *entityCheck) isCompacted(at journal.Position) bool {
	return e.cut != nil && !e.cut.Last.Less(at)
}

// follows reports whether a record continues the entity's records.
func (e *entityCheck) follows(at journal.Position, r *journal.RecordView) bool {
	return r.Expected == e.seq && r.Prev == e.hash && e.at.Less(at)
}

// advance moves to a record. link is the hash chain's link after it.
func (e *entityCheck) advance(at journal.Position, r *journal.RecordView, link journal.Hash, size int) {
	e.at, e.seq, e.hash = at, r.Last(), link
	e.deleted, e.stopped = r.Flags&journal.FlagTombstone != 0, r.Flags&journal.FlagStopped != 0
	e.count++
	e.bytes += uint64(size)
}

// matches reports whether the last record matches the entity row.
func (e *entityCheck) matches(h *Head) bool {
	return h.Sequence == e.seq && h.Hash == e.hash && h.Last == e.at && h.Deleted == e.deleted && h.Stopped == e.stopped &&
		h.Records == e.count && h.Bytes == e.bytes && !h.Last.Less(h.Stands)
}

func (v *verifier) recordPack(k Key, body []byte) error {
	if len(k.Suffix) < recordSuffixBytes {
		return fmt.Errorf("%w: record key is too short", journal.ErrDamaged)
	}
	entity := k.Suffix[:len(k.Suffix)-recordSuffixBytes]
	if !bytes.Equal(entity, v.entity.key) {
		v.endEntity()
		v.entity = beginEntity(bytes.Clone(entity), v.generation.cuts[string(entity)])
	}
	p, err := OpenPack(body)
	if err != nil {
		return err
	}
	if p.Previous != v.entity.at && !v.entity.straddles(p.Previous) {
		v.entityProblem("an event block does not follow the previous block")
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
	if !bytes.Equal(AppendRecordSuffix(nil, v.entity.seq, v.entity.at), k.Suffix[len(entity):]) {
		return fmt.Errorf("%w: the key of an event block does not name its last record", journal.ErrDamaged)
	}
	return nil
}

func (v *verifier) record(at journal.Position, raw []byte) error {
	if err := v.rec.Parse(raw); err != nil {
		return err
	}
	r, e := &v.rec, &v.entity
	if !bytes.Equal(AppendEntity(nil, r.Type, r.ID), e.key) {
		return fmt.Errorf("%w: an event block has a record of a different entity", journal.ErrDamaged)
	}
	if e.isCompacted(at) {
		return nil // the truncated record shares a block with remaining records
	}
	if !e.follows(at, r) {
		v.entityProblem("a record does not follow the previous record")
	}
	e.advance(at, r, v.chain.AfterView(r.Prev, r), len(raw))
	v.Records++
	v.Events += uint64(r.EventCount)
	if r.EventCount > 0 {
		v.generation.records.add(at, r.Type, r.ID, r.Expected+1, r.EventCount)
	}
	return nil
}

// endEntity compares the entity's records with its entity row.
func (v *verifier) endEntity() {
	e := &v.entity
	if e.key == nil {
		return
	}
	key := append(AppendPrefix(nil, v.generation.shard, v.generation.number, ClassEntity), e.key...)
	var h Head
	found, err := v.view.Get(key, func(body []byte) (err error) {
		h, err = DecodeHead(body)
		return err
	})
	switch {
	case err != nil:
		// The entity row's pair has already been reported.
	case !found:
		v.entityProblem("it has records but no entity row")
	case !e.matches(&h):
		v.entityProblem("its records end at sequence %d, its entity row is at %d, or they differ in other fields", e.seq, h.Sequence)
	}
	e.key = nil
}

func (v *verifier) entityProblem(format string, args ...any) {
	if !v.entity.broken {
		v.problem(fmt.Sprintf("an entity of shard %d", v.generation.shard), format, args...)
	}
	v.entity.broken = true
}

// snapshot checks that a snapshot is stored under its own key, is listed in its
// entity row, and matches the entity's hash chain.
func (v *verifier) snapshot(k Key, body []byte) error {
	var s journal.Snapshot
	if err := s.Decode(body); err != nil {
		return err
	}
	entity := AppendEntityID(nil, s.Entity)
	if !bytes.Equal(AppendSnapshotSuffix(entity, s.Sequence), k.Suffix) {
		return fmt.Errorf("%w: the key of a snapshot does not name its sequence", journal.ErrDamaged)
	}
	var h Head
	key := append(AppendPrefix(nil, k.Shard, k.Generation, ClassEntity), entity...)
	found, err := v.view.Get(key, func(body []byte) (err error) {
		h, err = DecodeHead(body)
		return err
	})
	if err != nil {
		return nil // the snapshot's pair has already been reported
	}
	where := fmt.Sprintf("a snapshot of shard %d", k.Shard)
	if !found || !slices.Contains(h.Snapshots[:], s.Sequence) {
		v.problem(where, "the entity row does not list it")
		return nil
	}
	link, err := v.linkAt(k, entity, s.Sequence)
	if err == nil && link != s.Hash {
		v.problem(where, "its hash differs from its entity's history at sequence %d", s.Sequence)
	}
	return nil
}

// linkAt returns the hash chain's link at a sequence. Errors were reported with
// the records.
func (v *verifier) linkAt(k Key, entity []byte, at journal.Sequence) (link journal.Hash, err error) {
	prefix := append(AppendPrefix(nil, k.Shard, k.Generation, ClassRecord), entity...)
	from := AppendRecordSuffix(prefix[:len(prefix):len(prefix)], at, journal.Position{})
	err = v.view.Scan(prefix, from, func(_, body []byte) error {
		p, err := OpenPack(body)
		for err == nil {
			var raw []byte
			if _, raw, err = p.Next(); raw == nil {
				break
			}
			if err = v.rec.Parse(raw); err == nil && v.rec.Last() == at {
				link = v.chain.AfterView(v.rec.Prev, &v.rec)
				return ErrStop
			}
		}
		return err
	})
	return link, err
}
