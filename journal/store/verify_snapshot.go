package store

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/hostd/hostd/journal"
)

// snapshot checks that a snapshot is under its own key, that its entity lists
// it, and that the entity's history has its link.
func (v *verifier) snapshot(k Key, body []byte) error {
	var s journal.Snapshot
	if err := s.Decode(body); err != nil {
		return err
	}
	entity := AppendEntityID(nil, s.Entity)
	if !bytes.Equal(AppendSnapshotSuffix(entity, s.Sequence), k.Rest) {
		return fmt.Errorf("%w: a snapshot is not under its sequence", journal.ErrDamaged)
	}
	var h Head
	key := append(AppendPrefix(nil, k.Shard, k.Generation, ClassEntity), entity...)
	found, err := v.view.Get(key, func(body []byte) (err error) {
		h, err = DecodeHead(body)
		return err
	})
	if err != nil {
		return nil // its pair is reported already
	}
	where := fmt.Sprintf("a snapshot of shard %d", k.Shard)
	if !found || !slices.Contains(h.Snapshots[:], s.Sequence) {
		v.problem(where, "its entity does not list it")
		return nil
	}
	link, err := v.linkAt(k, entity, s.Sequence)
	if err == nil && link != s.Hash {
		v.problem(where, "its entity has another history at sequence %d", s.Sequence)
	}
	return nil
}

// linkAt returns the chain's link at a sequence; an error was reported with
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
