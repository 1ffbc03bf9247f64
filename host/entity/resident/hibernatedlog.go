package resident

import (
	"encoding/binary"
	"iter"
	"slices"
	"strings"
)

// Log holds the records of one type's hibernated entities on pages, in the
// order of their last use. A page is freed when its last record is gone. Two
// adjacent pages are merged when their records fit on one page.
type Log[T comparable] struct {
	typ   string
	pages []uint32 // page numbers
	count int
	turn  int // index into pages at which merging continues
	kinds []kind[T]
}

// kind is an activation that records refer to, and the number of these records.
type kind[T comparable] struct {
	typ T
	n   int
}

// page is memory for records that the garbage collector does not scan.
type page[T comparable] struct {
	log  *Log[T]
	mem  []byte
	used int // bytes taken by records, including forgotten ones
	live int // bytes of live records
	from int // offset before which there are no live records
}

// Count is the number of records in the log.
func (log *Log[T]) Count() int { return log.count }

// pages are the pages of a store by number.
type pages[T comparable] struct {
	all  []*page[T] // pages by number; nil if the number is free; number 0 is never used
	free []uint32
}

const pageBytes = 8 << pageBits

// mostPages is the number of pages that a Slot can address.
const mostPages = 1 << (32 - pageBits)

func (p *pages[T]) at(n uint32) *page[T] { return p.all[n] }

// open returns a new page, or nil if there is no memory.
func (p *pages[T]) open(log *Log[T]) (n uint32, pg *page[T]) {
	if len(p.free) == 0 && len(p.all) >= mostPages {
		return 0, nil
	}
	mem, err := mapPage()
	if err != nil {
		return 0, nil
	}
	pg = &page[T]{log: log, mem: mem}
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

// bytes is the memory of the pages.
func (p *pages[T]) bytes() int64 { return int64(max(len(p.all)-1-len(p.free), 0)) * pageBytes }

func (p *pages[T]) close(n uint32) {
	unmapPage(p.all[n].mem)
	p.all[n] = nil
	p.free = append(p.free, n)
}

// closeAll frees all pages.
func (p *pages[T]) closeAll() {
	for n, pg := range p.all {
		if pg != nil {
			p.close(uint32(n))
		}
	}
	*p = pages[T]{}
}

// room allocates a record at the end of a log.
func (s *Store[T]) room(log *Log[T], typ string, size int) (Slot, record) {
	if log.typ == "" {
		log.typ = strings.Clone(typ)
	}
	var pg *page[T]
	var n uint32
	if last := len(log.pages) - 1; last >= 0 {
		n = log.pages[last]
		pg = s.pages.at(n)
	}
	if pg == nil || pg.used+size > len(pg.mem) {
		s.merge(log)
		if n, pg = s.pages.open(log); pg == nil {
			return 0, nil
		}
		log.pages = append(log.pages, n)
	}
	at := pg.used
	pg.used += size
	pg.live += size
	log.count++
	return slotOf(n, at), pg.mem[at:pg.used]
}

// kind increments the number of an activation's records and returns the
// number that identifies the activation.
func (log *Log[T]) kind(t T) uint16 {
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
		log.kinds = append(log.kinds, kind[T]{})
	}
	log.kinds[free] = kind[T]{t, 1}
	return uint16(free)
}

// leave decrements the number of an activation's records and returns the
// activation.
func (log *Log[T]) leave(n uint16) T {
	k := &log.kinds[n]
	t := k.typ
	if k.n--; k.n == 0 {
		var none T
		k.typ = none
	}
	return t
}

// forget marks a record as gone. It frees the page if that was the last live
// record.
func (s *Store[T]) forget(log *Log[T], pg *page[T], rec record) {
	size := int(binary.LittleEndian.Uint16(rec))
	binary.LittleEndian.PutUint16(rec[2:], recordGone)
	pg.live -= size
	if log.count--; pg.live > 0 {
		return
	}
	at := slices.IndexFunc(log.pages, func(n uint32) bool { return s.pages.at(n) == pg })
	s.pages.close(log.pages[at])
	log.pages = slices.Delete(log.pages, at, at+1)
}

// records iterates over the live records of a page by offset.
func (pg *page[T]) records() iter.Seq2[int, record] {
	return func(yield func(int, record) bool) {
		gone := true // no record before this record is live
		for at := pg.from; at < pg.used; {
			rec := record(pg.mem[at:])
			size := int(binary.LittleEndian.Uint16(rec))
			if binary.LittleEndian.Uint16(rec[2:])&recordGone == 0 {
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

// oldestOf iterates over the first records of a log, at most n.
func (s *Store[T]) oldestOf(log *Log[T], n int) iter.Seq2[Slot, record] {
	return func(yield func(Slot, record) bool) {
		for _, number := range log.pages {
			for at, rec := range s.pages.at(number).records() {
				if !yield(slotOf(number, at), rec) {
					return
				}
				if n--; n <= 0 {
					return
				}
			}
		}
	}
}

func (s *Store[T]) firstOf(log *Log[T]) (Slot, record) {
	for p, rec := range s.oldestOf(log, 1) {
		return p, rec
	}
	return 0, nil
}

// mergesAtOnce bounds the pairs of pages that are examined for each new page.
// With more than one pair, merging keeps up with the records that are
// forgotten.
const mergesAtOnce = 4

// merge merges adjacent pages whose records fit on one page. It continues where
// the last call stopped and wraps around.
func (s *Store[T]) merge(log *Log[T]) {
	for range mergesAtOnce {
		if log.turn+1 >= len(log.pages) {
			log.turn = 0
			return
		}
		n, m := log.pages[log.turn], log.pages[log.turn+1]
		a, b := s.pages.at(n), s.pages.at(m)
		if a.live+b.live > pageBytes {
			log.turn++
			continue
		}
		into, pg := s.pages.open(log)
		if pg == nil {
			return
		}
		for _, from := range []uint32{n, m} {
			for at, rec := range s.pages.at(from).records() {
				s.move(slotOf(from, at), rec, into, pg)
			}
			s.pages.close(from)
		}
		log.pages[log.turn] = into
		log.pages = slices.Delete(log.pages, log.turn+1, log.turn+2)
	}
}

func (s *Store[T]) move(old Slot, rec record, number uint32, to *page[T]) {
	p := slotOf(number, to.used)
	table := s.owner.Table(rec.shard())
	if table.parts != nil {
		table = &table.parts[partOf(s.at(old).key())]
	}
	i := s.indexOf(table, old)
	copy(to.mem[to.used:], rec)
	to.used += len(rec)
	to.live += len(rec)
	table.slots[i] = p
	s.owner.OnMove(rec.instance(), rec.handle(), p)
}
