package entity

import (
	"encoding/binary"
	"iter"
	"slices"
	"strings"

	"github.com/hostd/hostd/sharding"
)

// foldLog is the records of one type's folded entities, in the order in which
// they were asked for last, on pages. A page goes when none of its records is
// left; two that lie side by side become one when their records fit on it.
type foldLog struct {
	typ   string
	pages []uint32 // numbers
	count int
	turn  int // of the pages: where merging goes on
	kinds []kind
}

// kind is a binding that records refer to, and how many do.
type kind struct {
	typ *Type
	n   int
}

// page is memory for records outside of what the collector sees.
type page struct {
	log  *foldLog
	mem  []byte
	used int // bytes that records lie in, those that are gone too
	live int // bytes of records that are not gone
	from int // no live record lies before
}

// pages are a lane's, by number.
type pages struct {
	all  []*page // nil where free; number 0 is none
	free []uint32
}

const pageBytes = 8 << pageBits

// mostPages is as many as places can tell.
const mostPages = 1 << (32 - pageBits)

func (p *pages) at(n uint32) *page { return p.all[n] }

// open returns a new page; nil when there is no memory.
func (p *pages) open(log *foldLog) (n uint32, pg *page) {
	if len(p.free) == 0 && len(p.all) >= mostPages {
		return 0, nil
	}
	mem, err := mapPage()
	if err != nil {
		return 0, nil
	}
	pg = &page{log: log, mem: mem}
	if last := len(p.free) - 1; last >= 0 {
		n, p.free = p.free[last], p.free[:last]
		p.all[n] = pg
		return n, pg
	}
	if len(p.all) == 0 {
		p.all = append(p.all, nil)
	}
	p.all = append(p.all, pg)
	return uint32(len(p.all) - 1), pg
}

// bytes is how much memory the pages take.
func (p *pages) bytes() int64 { return int64(max(len(p.all)-1-len(p.free), 0)) * pageBytes }

func (p *pages) close(n uint32) {
	unmapPage(p.all[n].mem)
	p.all[n] = nil
	p.free = append(p.free, n)
}

// closeAll gives all pages back.
func (p *pages) closeAll() {
	for n, pg := range p.all {
		if pg != nil {
			p.close(uint32(n))
		}
	}
	*p = pages{}
}

// appendRecord makes room for a record at the end of a log.
func (c *core) appendRecord(log *foldLog, typ string, size int) (place, []byte) {
	if log.typ == "" {
		log.typ = strings.Clone(typ)
	}
	var pg *page
	var n uint32
	if last := len(log.pages) - 1; last >= 0 {
		n = log.pages[last]
		pg = c.pages.at(n)
	}
	if pg == nil || pg.used+size > len(pg.mem) {
		c.merge(log)
		if n, pg = c.pages.open(log); pg == nil {
			return 0, nil
		}
		log.pages = append(log.pages, n)
	}
	at := pg.used
	pg.used += size
	pg.live += size
	log.count++
	return placeOf(n, at), pg.mem[at:pg.used]
}

// kind notes that one more record refers to a binding, and returns its number.
func (log *foldLog) kind(t *Type) uint16 {
	free := -1
	for i := range log.kinds {
		switch k := &log.kinds[i]; {
		case k.typ == t:
			k.n++
			return uint16(i)
		case k.n == 0:
			free = i
		}
	}
	if free < 0 {
		free = len(log.kinds)
		log.kinds = append(log.kinds, kind{})
	}
	log.kinds[free] = kind{t, 1}
	return uint16(free)
}

// leave notes that one record fewer refers to a binding, and returns it.
func (log *foldLog) leave(n uint16) *Type {
	k := &log.kinds[n]
	t := k.typ
	if k.n--; k.n == 0 {
		k.typ = nil
	}
	return t
}

// forgetRecord marks a record as gone, and gives its page back with the last.
func (c *core) forgetRecord(log *foldLog, pg *page, rec []byte) {
	size := int(binary.LittleEndian.Uint16(rec))
	binary.LittleEndian.PutUint16(rec[2:], foldGone)
	pg.live -= size
	if log.count--; pg.live > 0 {
		return
	}
	at := slices.IndexFunc(log.pages, func(n uint32) bool { return c.pages.at(n) == pg })
	c.pages.close(log.pages[at])
	log.pages = slices.Delete(log.pages, at, at+1)
}

// records goes through the records of a page that are not gone.
func (pg *page) records() iter.Seq2[int, []byte] {
	return func(yield func(int, []byte) bool) {
		gone := true // all before this one
		for at := pg.from; at < pg.used; {
			rec := pg.mem[at:]
			size := int(binary.LittleEndian.Uint16(rec))
			if binary.LittleEndian.Uint16(rec[2:])&foldGone == 0 {
				if gone = false; !yield(at, rec[:size]) {
					return
				}
			} else if gone {
				pg.from = at + size
			}
			at += size
		}
	}
}

// oldestOf goes through the first records of a log, at most n.
func (c *core) oldestOf(log *foldLog, n int) iter.Seq2[place, []byte] {
	return func(yield func(place, []byte) bool) {
		for _, number := range log.pages {
			for at, rec := range c.pages.at(number).records() {
				if !yield(placeOf(number, at), rec) {
					return
				}
				if n--; n <= 0 {
					return
				}
			}
		}
	}
}

func (c *core) firstOf(log *foldLog) (place, []byte) {
	for p, rec := range c.oldestOf(log, 1) {
		return p, rec
	}
	return 0, nil
}

// mergesAtOnce bounds the pairs of pages that are looked at for each new page:
// more than one, so that the log keeps up with what is gone from it.
const mergesAtOnce = 4

// merge puts the records of two pages onto one where they fit, going round
// through the log.
func (c *core) merge(log *foldLog) {
	for range mergesAtOnce {
		if log.turn+1 >= len(log.pages) {
			log.turn = 0
			return
		}
		n, m := log.pages[log.turn], log.pages[log.turn+1]
		a, b := c.pages.at(n), c.pages.at(m)
		if a.live+b.live > pageBytes {
			log.turn++
			continue
		}
		into, pg := c.pages.open(log)
		if pg == nil {
			return
		}
		for _, from := range []uint32{n, m} {
			for at, rec := range c.pages.at(from).records() {
				c.moveRecord(placeOf(from, at), rec, into, pg)
			}
			c.pages.close(from)
		}
		log.pages[log.turn] = into
		log.pages = slices.Delete(log.pages, log.turn+1, log.turn+2)
	}
}

func (c *core) moveRecord(old place, rec []byte, number uint32, to *page) {
	p := placeOf(number, to.used)
	s := c.shards[sharding.ShardID(binary.LittleEndian.Uint32(rec[8:]))]
	i := c.slotOf(&s.folds, old)
	copy(to.mem[to.used:], rec)
	to.used += len(rec)
	to.live += len(rec)
	s.folds.slots[i] = p
	c.numbered[binary.LittleEndian.Uint32(rec[12:])].folds[binary.LittleEndian.Uint32(rec[16:])] = p
}
