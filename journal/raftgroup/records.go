package raftgroup

import (
	"slices"

	"github.com/hostd/hostd/journal/raftgroup/wire"
	"github.com/hostd/hostd/journal/wal"
)

// records collects what one turn writes to the log: first the install records
// of snapshots, then the sections of the groups, as many per record as fit. A
// restart may find only the first of these records, so each of them must leave
// a state from which raft can start.
type records struct {
	limit    int // size at which another record starts, in bytes
	sections []pending
	next     int       // the first section that is not in a record yet
	out      []pending // sections in the record returned last
	// installs are groups whose raft.Ready contains a snapshot. The first
	// installed of them are in a record.
	installs  []*group
	installed int
	buf       []byte
}

// pending is a section and its group.
type pending struct {
	g *group
	s wire.Section
}

// reset starts a turn.
func (r *records) reset() {
	clear(r.sections)
	clear(r.installs)
	r.sections, r.next, r.out = r.sections[:0], 0, nil
	r.installs, r.installed = r.installs[:0], 0
}

// add adds the section of a group.
func (r *records) add(g *group, s wire.Section) { r.sections = append(r.sections, pending{g, s}) }

// addInstall adds the snapshot of a group. It replaces the group's other
// sections, because they belong to the log that the snapshot replaces.
func (r *records) addInstall(g *group) {
	r.sections = slices.DeleteFunc(r.sections, func(p pending) bool { return p.g == g })
	r.installs = append(r.installs, g)
}

// nextInstall returns the payload of the next record that installs a snapshot
// of this turn, or nil if no such record is left. It is appended before the
// turn's other records, with kind KindInstall, and onInstallAppended must
// follow each append. The record includes the hard state, because a commit
// index that only the snapshot justifies must never be in the log without it.
func (r *records) nextInstall() []byte {
	if r.installed == len(r.installs) {
		return nil
	}
	g := r.installs[r.installed]
	image := imageAfterInstall(g, g.transfer.incoming)
	r.buf = wire.AppendInstall(r.buf[:0], &image)
	return r.buf
}

// onInstallAppended is called after an install record was appended.
func (r *records) onInstallAppended() {
	g := r.installs[r.installed]
	r.installed++
	g.onInstalled(imageAfterInstall(g, g.transfer.incoming))
	g.log.ClearPositions()
}

// nextTurn returns the payload of the turn's next record, of kind KindTurn, or
// nil if no record is left. The payload is valid until the next call;
// onAppended must be called in between.
func (r *records) nextTurn() []byte {
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

// onAppended stores the position of the last record.
func (r *records) onAppended(pos wal.Position) {
	for i := range r.out {
		g, s := r.out[i].g, &r.out[i].s
		g.logState.onAppended(s)
		if len(s.Ents) > 0 {
			g.log.RecordPosition(s.First, pos)
		}
	}
	r.out = nil
}
