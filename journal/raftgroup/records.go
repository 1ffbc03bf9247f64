package raftgroup

import (
	"slices"

	"github.com/hostd/hostd/journal/raftgroup/wire"
	"github.com/hostd/hostd/journal/wal"
)

// records are what one turn writes to the log: first those that make snapshots
// current, then the sections of the groups, as many in a record as fit. Each
// record leaves a state that raft may start from.
type records struct {
	limit    int // bytes at which another record begins
	sections []pending
	next     int       // the first section that is in no record yet
	out      []pending // in the record handed out
	// installs are groups whose ready has a snapshot, installed those of them
	// that are in a record.
	installs  []*group
	installed int
	buf       []byte
}

// pending is a section and the group it is of.
type pending struct {
	g *group
	s wire.Section
}

// reset begins a turn.
func (r *records) reset() {
	clear(r.sections)
	clear(r.installs)
	r.sections, r.next, r.out = r.sections[:0], 0, nil
	r.installs, r.installed = r.installs[:0], 0
}

// add adds what is to be written of a group.
func (r *records) add(g *group, s wire.Section) { r.sections = append(r.sections, pending{g, s}) }

// addInstall adds the snapshot of a group, in the place of what else there was
// to be written: that is of a log that is gone.
func (r *records) addInstall(g *group) {
	r.sections = slices.DeleteFunc(r.sections, func(p pending) bool { return p.g == g })
	r.installs = append(r.installs, g)
}

// install returns the payload of a record that makes a snapshot of this turn
// current, to be appended before the turn's other records with kind KindInstall,
// and nil when there is none left. installAppended must be called in between. It
// holds the hard state too: one that claims what only the snapshot has committed
// is never in the log without it.
func (r *records) install() []byte {
	if r.installed == len(r.installs) {
		return nil
	}
	g := r.installs[r.installed]
	image := next(g, g.transfer.incoming)
	r.buf = wire.AppendInstall(r.buf[:0], &image)
	return r.buf
}

// installAppended follows the append of such a record.
func (r *records) installAppended() {
	g := r.installs[r.installed]
	r.installed++
	g.installed(next(g, g.transfer.incoming))
	g.log.Unwritten()
}

// turn returns the payload of the turn's next record, to be appended with kind
// KindTurn, and nil when there is none left. It is valid until the next call.
// appended must be called in between.
func (r *records) turn() []byte {
	if r.next == len(r.sections) {
		return nil
	}
	b := append(r.buf[:0], wire.PayloadVersion)
	from := r.next
	for ; r.next < len(r.sections); r.next++ {
		p := &r.sections[r.next]
		size := p.s.Bytes()
		if r.next > from && len(b)+size > r.limit {
			break
		}
		if r.next == from && size > r.limit {
			if first, rest, ok := p.s.Split(r.limit); ok {
				r.out = []pending{{p.g, first}}
				p.s = rest
				r.buf = wire.AppendSection(b, &first)
				return r.buf
			}
		}
		b = wire.AppendSection(b, &p.s)
	}
	r.out = r.sections[from:r.next]
	r.buf = b
	return b
}

// appended says where the last record went.
func (r *records) appended(pos wal.Position) {
	for i := range r.out {
		g, s := r.out[i].g, &r.out[i].s
		g.recorded.appended(s)
		if len(s.Ents) > 0 {
			g.log.Written(s.First, pos)
		}
	}
	r.out = nil
}
