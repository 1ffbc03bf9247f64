package store

import "github.com/hostd/hostd/journal"

// noteCut keeps where an entity's records begin, for the order and the records
// that follow the heads.
func (v *verifier) noteCut(entity []byte, c *Cut) {
	if c == nil {
		return
	}
	if v.cuts == nil {
		v.cuts = make(map[string]*Cut)
	}
	v.cuts[string(entity)] = c
}

// wasCut reports that the record of a row is not there any more.
func (v *verifier) wasCut(row *OrderRow) bool {
	if len(v.cuts) == 0 {
		return false
	}
	c := v.cuts[string(AppendEntity(nil, row.Type, row.ID))]
	return c != nil && !c.Last.Less(row.At)
}

// beginAtCut starts an entity's records where its cut says.
func (v *verifier) beginAtCut() {
	if v.cut = v.cuts[string(v.entity)]; v.cut != nil {
		v.at, v.seq, v.hash = v.cut.Last, v.cut.Sequence, v.cut.Hash
	}
}

// straddles reports that a pack which follows a record before the cut may hold
// the first that was not cut: none of those was met yet.
func (v *verifier) straddles(previous journal.Position) bool {
	return v.cut != nil && v.count == 0 && previous.Less(v.cut.Last)
}
