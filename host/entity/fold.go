package entity

import (
	"encoding/binary"
	"slices"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// An entity that is in memory and that nobody has asked for of late is folded:
// what the lane knows of it becomes a record of bytes, outside of what the
// collector sees, and its state stays where it is, in its guest. Whoever needs
// the entity finds it as it was: it is unfolded before anything else happens to
// it, its passivation included.
//
//	resident <----asked for, leaves, its instance or shard goes---- folded
//	         ----nothing in flight, idle for Options.FoldAfter---->
//
// A record, little endian, padded to eight bytes:
//
//	size u16 | flags u16 | key u32 | shard u32 | instance u32 | handle u32 |
//	type u16 | bytes of the id u16 | touched u32 | replay 3 x u32 |
//	sequence u64 | chain's link 32 | bytes of the window u16 | id | window |
//	where the window has forgotten something, the time of that i64
const (
	foldHead = 82

	foldGone   = 1 << 0
	foldLives  = 1 << 1
	foldAsleep = 1 << 2
	foldForgot = 1 << 3
	foldCostly = 1 << 4
)

// folds are a shard's folded entities: places in the logs of their types by a
// hash of their names, as in a directory.
type folds struct {
	slots []place // 0 where free
	len   int
}

// place is where a record lies: its page and its offset there, by eights.
type place uint32

const pageBits = 15 // pages of 256 KiB

func placeOf(page uint32, offset int) place { return place(page<<pageBits | uint32(offset/8)) }

func (p place) page() uint32 { return uint32(p) >> pageBits }
func (p place) offset() int  { return int(p&(1<<pageBits-1)) * 8 }

// recordAt returns the bytes from a place on.
func (c *core) recordAt(p place) []byte { return c.pages.at(p.page()).mem[p.offset():] }

func foldKey(rec []byte) uint32 { return binary.LittleEndian.Uint32(rec[4:]) }

func foldID(rec []byte) []byte {
	return rec[foldHead : foldHead+int(binary.LittleEndian.Uint16(rec[22:]))]
}

// folded returns the place of a folded entity; 0 when there is none.
func (c *core) folded(s *shard, id sharding.EntityID, key uint32) place {
	f := &s.folds
	if f.len == 0 {
		return 0
	}
	mask := len(f.slots) - 1
	for i := int(key) & mask; f.slots[i] != 0; i = (i + 1) & mask {
		rec := c.recordAt(f.slots[i])
		if foldKey(rec) == key && string(foldID(rec)) == id.ID && c.pages.at(f.slots[i].page()).log.typ == id.Type {
			return f.slots[i]
		}
	}
	return 0
}

func (c *core) keepFold(f *folds, p place) {
	if 4*(f.len+1) > 3*len(f.slots) {
		c.resizeFolds(f, max(2*len(f.slots), leastSlots))
	}
	c.placeFold(f, p)
	f.len++
}

func (c *core) placeFold(f *folds, p place) {
	mask := len(f.slots) - 1
	i := int(foldKey(c.recordAt(p))) & mask
	for f.slots[i] != 0 {
		i = (i + 1) & mask
	}
	f.slots[i] = p
}

func (c *core) resizeFolds(f *folds, slots int) {
	old := f.slots
	f.slots = make([]place, slots)
	for _, p := range old {
		if p != 0 {
			c.placeFold(f, p)
		}
	}
}

// slotOf is the slot that holds a place.
func (c *core) slotOf(f *folds, p place) int {
	mask := len(f.slots) - 1
	i := int(foldKey(c.recordAt(p))) & mask
	for f.slots[i] != p {
		i = (i + 1) & mask
	}
	return i
}

func (c *core) dropFold(f *folds, p place) {
	mask := len(f.slots) - 1
	i := c.slotOf(f, p)
	for j := (i + 1) & mask; f.slots[j] != 0; j = (j + 1) & mask {
		if home := int(foldKey(c.recordAt(f.slots[j]))) & mask; (j-home)&mask >= (j-i)&mask {
			f.slots[i] = f.slots[j]
			i = j
		}
	}
	f.slots[i] = 0
	f.len--
	switch {
	case f.len == 0:
		f.slots = nil
	case 4*f.len < len(f.slots) && len(f.slots) > leastSlots:
		c.resizeFolds(f, len(f.slots)/2)
	}
}

// foldable reports that nothing refers to the entity but what holds it in
// memory, and that it is as small as most.
func (c *core) foldable(e *entity) bool {
	_, away := c.away[e]
	return e.restful() && e.rest == nil && e.seen.many == nil && !e.queued && !e.blocked && !e.held && !away
}

// fold makes a record of an entity. It reports whether there was memory for it.
func (c *core) fold(l *idle, e *entity) bool {
	size := foldHead + len(e.id.ID) + len(e.seen.few)
	if e.seen.forgot != 0 {
		size += 8
	}
	size = (size + 7) &^ 7
	p, rec := c.appendRecord(&l.log, e.id.Type, size)
	if rec == nil {
		return false
	}
	flags := uint16(0)
	if e.lives {
		flags |= foldLives
	}
	if e.asleep {
		flags |= foldAsleep
	}
	if e.seen.forgot != 0 {
		flags |= foldForgot
	}
	if e.costly {
		flags |= foldCostly
	}
	le := binary.LittleEndian
	le.PutUint16(rec[0:], uint16(size))
	le.PutUint16(rec[2:], flags)
	le.PutUint32(rec[4:], e.key)
	le.PutUint32(rec[8:], uint32(e.shard.id))
	le.PutUint32(rec[12:], e.inst.number)
	le.PutUint32(rec[16:], e.handle)
	le.PutUint16(rec[20:], l.log.kind(e.typ))
	le.PutUint16(rec[22:], uint16(len(e.id.ID)))
	le.PutUint32(rec[24:], uint32(e.touched))
	le.PutUint32(rec[28:], uint32(e.replay.events))
	le.PutUint32(rec[32:], uint32(e.replay.bytes))
	le.PutUint32(rec[36:], uint32(e.replay.snapshot))
	le.PutUint64(rec[40:], uint64(e.sequence))
	copy(rec[48:], e.hash[:])
	le.PutUint16(rec[80:], uint16(len(e.seen.few)))
	at := foldHead + copy(rec[foldHead:], e.id.ID)
	at += copy(rec[at:], e.seen.few)
	if e.seen.forgot != 0 {
		le.PutUint64(rec[at:], uint64(e.seen.forgot))
	}

	c.residents.cache.setApart(e)
	l.take(e)
	e.shard.entities.remove(e)
	c.keepFold(&e.shard.folds, p)
	e.inst.entities[e.handle] = nil
	e.inst.folded(e.handle, p)
	e.phase, e.inst, e.typ, e.seen = cold, nil, nil, dedupe{} // in case that somebody still has it
	return true
}

// unfold makes an entity of a record. It is the first of its type's idle ones
// then, or the last.
func (c *core) unfold(p place, first bool) *entity {
	le := binary.LittleEndian
	pg, rec := c.pages.at(p.page()), c.recordAt(p)
	log := pg.log
	id := foldID(rec)
	few := rec[foldHead+len(id):][:le.Uint16(rec[80:])]
	flags := le.Uint16(rec[2:])
	e := &entity{
		id:    sharding.EntityID{Type: log.typ, ID: string(id)},
		shard: c.shards[sharding.ShardID(le.Uint32(rec[8:]))], key: foldKey(rec),
		phase: resident, lives: flags&foldLives != 0, asleep: flags&foldAsleep != 0, costly: flags&foldCostly != 0,
		replay: replay{int32(le.Uint32(rec[28:])), int32(le.Uint32(rec[32:])), int32(le.Uint32(rec[36:]))},
		inst:   c.numbered[le.Uint32(rec[12:])], handle: le.Uint32(rec[16:]), touched: tick(le.Uint32(rec[24:])),
		typ: log.leave(le.Uint16(rec[20:])), sequence: journal.Sequence(le.Uint64(rec[40:])),
		seen: dedupe{few: string(few)},
	}
	copy(e.hash[:], rec[48:])
	if flags&foldForgot != 0 {
		e.seen.forgot = int64(le.Uint64(rec[foldHead+len(id)+len(few):]))
	}
	c.dropFold(&e.shard.folds, p)
	e.inst.unfolded(e.handle)
	e.inst.entities[e.handle] = e
	e.shard.entities.put(e)
	l := c.residents.idle[log.typ]
	if first {
		l.unshift(e)
	} else {
		l.push(e)
		c.look(c.now.UnixNano() + int64(c.opts.FoldAfter))
	}
	c.residents.cache.putBack(e)
	c.forgetRecord(log, pg, rec)
	return e
}

// find returns an entity of the shard that the lane knows; nil when it does not.
func (c *core) find(s *shard, id sharding.EntityID, key uint32) *entity {
	if e := s.entities.get(id, key); e != nil {
		return e
	}
	if p := c.folded(s, id, key); p != 0 {
		return c.unfold(p, false)
	}
	return nil
}

// unfoldShard unfolds all entities of a shard.
func (c *core) unfoldShard(s *shard) {
	for _, p := range slices.Clone(s.folds.slots) {
		if p != 0 {
			c.unfold(p, false)
		}
	}
}

// leaveFolds lets the folded entities of an instance that ends leave memory.
// There may be some 100,000 of them, so only those that are to be started again
// are unfolded for it.
func (c *core) leaveFolds(in *instance) {
	for _, p := range in.folds {
		switch {
		case p == 0:
		case c.keeps(c.pages.at(p.page()).log.typ):
			c.unfold(p, false)
		default:
			c.dropFolded(p)
		}
	}
}

// dropFolded lets a folded entity leave memory. Its handle goes with its
// instance.
func (c *core) dropFolded(p place) {
	pg, rec := c.pages.at(p.page()), c.recordAt(p)
	log := pg.log
	s := c.shards[sharding.ShardID(binary.LittleEndian.Uint32(rec[8:]))]
	c.dropFold(&s.folds, p)
	log.leave(binary.LittleEndian.Uint16(rec[20:]))
	c.known--
	c.types.of(log.typ).resident.Add(-1)
	c.residents.cache.dropApart()
	c.forgetRecord(log, pg, rec)
	if l := c.residents.idle[log.typ]; l.first == nil && log.count == 0 {
		delete(c.residents.idle, log.typ)
	}
}

// discardFolds forgets all folded entities, when the lane ends: nothing of them
// is in flight, and their instances are about to be closed. Unfolding millions
// of them would take longer than a node has to stop.
func (c *core) discardFolds() {
	for _, s := range c.shards {
		c.known -= s.folds.len
		s.folds = folds{}
	}
	for _, in := range c.instances {
		for _, p := range in.folds {
			if p != 0 {
				in.resident--
			}
		}
		in.folds = nil
	}
	for name, l := range c.residents.idle {
		c.types.of(name).resident.Add(-int64(l.log.count))
		l.log = foldLog{}
	}
	c.residents.cache.apart = 0
	c.pages.closeAll()
}

// foldIdle folds entities of a type that nobody has asked for of late, at most
// some, and returns how many it has looked at.
func (c *core) foldIdle(l *idle, most int) (looked int) {
	for ; looked < most && l.next != nil; looked++ {
		e := l.next
		if wait := c.opts.FoldAfter - e.touched.since(c.now); wait > 0 {
			c.look(c.now.UnixNano() + int64(wait))
			break
		}
		if !e.restful() {
			c.look(c.now.UnixNano() + int64(c.opts.FoldAfter))
			break
		}
		if l.next = e.idler.next; c.foldable(e) && !c.fold(l, e) {
			break // no memory
		}
	}
	return looked
}

// unfoldOldest unfolds the first folded entity of a type when it has been idle
// for as long as the type says, or asks to look again when it will have been.
func (c *core) unfoldOldest(l *idle) {
	p, rec := c.firstOf(&l.log)
	if rec == nil {
		return
	}
	if wait := l.after - tick(binary.LittleEndian.Uint32(rec[24:])).since(c.now); wait > 0 {
		c.look(c.now.UnixNano() + int64(wait))
		return
	}
	c.unfold(p, true)
}

// victim returns the entity that the lane can do without best: of the folded
// ones that were asked for longest ago the one that was asked for least often,
// unless the cache knows one that was asked for less often.
func (c *core) victim() *entity {
	var best place
	least := uint64(1 << 62)
	for _, l := range c.residents.idle {
		for p, rec := range c.oldestOf(&l.log, victims) {
			if n := c.residents.cache.often.estimate(foldKey(rec)); n < least {
				best, least = p, n
			}
		}
	}
	e := c.residents.cache.victim()
	if best == 0 || e != nil && c.residents.cache.often.estimate(e.key) < least {
		return e
	}
	return c.unfold(best, true)
}

// victims is how many folded entities of a type are compared.
const victims = 8

func (in *instance) folded(h uint32, p place) {
	if int(h) >= len(in.folds) {
		in.folds = append(in.folds, make([]place, len(in.entities)-len(in.folds))...)
	}
	in.folds[h] = p
}

func (in *instance) unfolded(h uint32) { in.folds[h] = 0 }
