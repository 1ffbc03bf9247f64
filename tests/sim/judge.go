package sim

import (
	"fmt"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// judge decodes the records of an entry and checks that each continues its
// entity's chain. An entry holds at most one record of each entity.
func (s *state) judge(body []byte) ([]journal.Record, error) {
	var out []journal.Record
	for len(body) > 0 {
		raw, rest, err := journal.SplitRecord(body)
		if err != nil {
			return nil, err
		}
		var r journal.Record
		if err := r.Decode(raw); err != nil {
			return nil, err
		}
		if e := s.entities[r.Entity.ID]; e == nil && (r.Expected != 0 || r.Prev != journal.Hash{}) ||
			e != nil && (r.Expected != e.sequence || r.Prev != e.hash) {
			return nil, fmt.Errorf("entity %s: record does not continue the chain at %d", r.Entity.ID, r.Expected)
		}
		out = append(out, r)
		body = rest
	}
	return out, nil
}

func (s *state) take(r *journal.Record, term sharding.Term) {
	e := s.entities[r.Entity.ID]
	if e == nil {
		e = &entity{byID: map[journal.CommandID]journal.Sequence{}}
		s.entities[r.Entity.ID] = e
	}
	var chain journal.Chain
	e.hash, e.module = chain.After(r), r.Module
	if e.sequence = r.Last(); len(r.Events) == 0 {
		return
	}
	e.byID[r.CommandID] = e.sequence
	e.records = append(e.records, record{r.CommandID, e.sequence, r.Term, term, e.hash})
}
