package raftgroup

import "github.com/hostd/hostd/journal/wal"

// Record returns the payload of the turn's next record, to be appended with
// kind KindTurn, and nil when there is none left. It is valid until the next
// call. Appended must be called in between.
func (c *Core) Record() []byte {
	if c.next == len(c.sections) {
		return nil
	}
	b := append(c.buf[:0], payloadVersion)
	from := c.next
	for ; c.next < len(c.sections); c.next++ {
		p := &c.sections[c.next]
		size := p.s.bytes()
		if c.next > from && len(b)+size > c.opts.MaxRecordBytes {
			break
		}
		if planted == 8 && p.s.hard != nil && len(p.s.ents) > 0 { // the hard state goes before its entries
			if c.next > from {
				break
			}
			first := section{shard: p.s.shard, replica: p.s.replica, hard: p.s.hard}
			p.s.hard = nil
			c.record = []pending{{p.g, first}}
			c.buf = appendSection(b, &first)
			return c.buf
		}
		if c.next == from && size > c.opts.MaxRecordBytes {
			if first, rest, ok := p.s.split(c.opts.MaxRecordBytes); ok {
				c.record = []pending{{p.g, first}}
				p.s = rest
				c.buf = appendSection(b, &first)
				return c.buf
			}
		}
		b = appendSection(b, &p.s)
	}
	c.record = c.sections[from:c.next]
	c.buf = b
	return b
}

// KindTurn is the kind of the records that Record returns.
const KindTurn byte = kindTurn

// bytes is the length of the section, a little too much.
func (s *section) bytes() int {
	n := sectionHeadBytes
	if s.conf != nil {
		st := s.conf.state
		n += 17 + 8*(len(st.GetVoters())+len(st.GetLearners())+len(st.GetVotersOutgoing())+len(st.GetLearnersNext()))
	}
	for _, e := range s.ents {
		n += entryHeadBytes + len(e.GetData())
	}
	return n
}

// split cuts a section that is too long for one record in two. Each part is a
// state that raft may start from: the first claims nothing committed that it
// does not hold.
func (s *section) split(limit int) (first, rest section, ok bool) {
	if len(s.ents) < 2 {
		return first, rest, false
	}
	n, size := 0, sectionHeadBytes
	for ; n < len(s.ents)-1; n++ {
		if size += entryHeadBytes + len(s.ents[n].GetData()); size > limit && n > 0 {
			break
		}
	}
	first, rest = *s, *s
	first.ents, rest.ents = s.ents[:n], s.ents[n:]
	rest.first = s.first + uint64(n)
	first.conf = nil
	if s.hard != nil {
		h := *s.hard
		h.commit = min(h.commit, rest.first-1)
		first.hard = &h
	}
	return first, rest, true
}

// Appended says where the last record went.
func (c *Core) Appended(pos wal.Position) {
	for i := range c.record {
		g, s := c.record[i].g, &c.record[i].s
		if s.hard != nil {
			g.written.hard = *s.hard
			g.hardUnwritten = *s.hard != g.hard
		}
		if s.conf != nil {
			g.written.conf, g.confUnwritten = *s.conf, false
		}
		if len(s.ents) > 0 {
			g.marked(s.first, pos)
		}
	}
	c.record = nil
}
