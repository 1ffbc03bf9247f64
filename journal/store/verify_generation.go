package store

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// generationCheck tracks one generation of a shard: its rows must agree with
// each other and with its applied state.
type generationCheck struct {
	begun    bool
	shard    sharding.ShardID
	number   uint32
	leftover bool // it may be incomplete and is not verified

	marked   bool
	mark     Applied
	heads    uint64
	existing uint64
	listed   uint64 // number of snapshots listed in entity rows
	found    uint64 // number of snapshots found
	set      uint64 // number of timers according to entity rows
	timers   uint64
	dues     uint64
	messages messageCounts
	runs     runCounts
	sums     Sums
	cuts     map[string]*Cut // start of the records of each truncated entity, by the entity's encoding in keys
	ordered  uint64          // index of the last order block
	order    fingerprint     // fingerprint of the order rows
	records  fingerprint     // fingerprint of the records with events
}

// fingerprint is an order-independent fingerprint of a set of rows.
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

// head counts an entity row and records where the entity's records begin, for
// the order blocks and records that follow the entity rows.
func (g *generationCheck) head(entity []byte, h *Head) {
	g.heads++
	if !h.Deleted {
		g.existing++
	}
	g.listed += uint64(h.Snapshots.Len())
	g.set += uint64(h.Timers) + uint64(h.Left)
	if h.Run.IsOpen() {
		g.runs.open++
	}
	if h.Cut == nil {
		return
	}
	if g.cuts == nil {
		g.cuts = make(map[string]*Cut)
	}
	g.cuts[string(entity)] = h.Cut
}

// isCompacted reports whether the record of a row was compacted.
func (g *generationCheck) isCompacted(row *OrderRow) bool {
	if len(g.cuts) == 0 {
		return false
	}
	c := g.cuts[string(AppendEntity(nil, row.Type, row.ID))]
	return c != nil && !c.Last.Less(row.At)
}

// reportMismatches reports where the rows disagree with each other or with the
// applied state.
func (g *generationCheck) reportMismatches(problem func(format string, args ...any)) {
	switch {
	case !g.marked:
		problem("it has no readable applied state")
		return
	case g.mark.Heads != g.heads || g.mark.Entities != g.existing:
		problem("found %d entity rows, %d of them of existing entities; the applied state counts %d and %d",
			g.heads, g.existing, g.mark.Heads, g.mark.Entities)
	case g.mark.Ordered != g.ordered:
		problem("its order ends at index %d; the applied state says %d", g.ordered, g.mark.Ordered)
	case g.listed != g.found:
		problem("found %d entity snapshots; the entity rows list %d", g.found, g.listed)
	case g.set != g.timers || g.set != g.dues:
		problem("found %d timers, %d by due time; the entity rows count %d", g.timers, g.dues, g.set)
	}
	g.messages.reportMismatches(problem)
	g.runs.reportMismatches(problem)
	if what := g.sums.Differ(&g.mark.Sums); g.mark.Summed && what != "" {
		problem("its rows do not match the checksums in the applied state: %s", what)
	}
	if g.order != g.records {
		problem("its order lists %d records with events, its entities have %d or different ones", g.order.n, g.records.n)
	}
}

func (v *verifier) orderPack(k Key, body []byte) error {
	g := &v.generation
	p, err := OpenOrderPack(body)
	if err != nil {
		return err
	}
	if p.Previous != g.ordered {
		v.problem(fmt.Sprintf("order of shard %d", g.shard), "an order block follows index %d, but the previous block ends at %d", p.Previous, g.ordered)
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
		if !g.isCompacted(&row) {
			g.order.add(row.At, row.Type, row.ID, row.First, row.Events)
		}
	}
	if len(k.Suffix) != 8 || binary.BigEndian.Uint64(k.Suffix) != row.At.Index {
		return fmt.Errorf("%w: the key of an order block does not name its last index", journal.ErrDamaged)
	}
	g.ordered = row.At.Index
	return nil
}
