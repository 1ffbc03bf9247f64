package sim

import (
	"bytes"
	"fmt"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/statefile"
	"github.com/hostd/hostd/sharding"
)

// machine is the model of a node's state machine. Like the real state machine,
// it applies entries after the loop has committed them, writes batches that
// become durable some time later, and after a power cut recovers at the durable
// version that the log recorded.
type machine struct {
	n      *node
	shards map[sharding.ShardID]*state
	queue  []batch
	bytes  int64
	// generations are the current generations according to the log. The state of a
	// shard may belong to an earlier generation.
	generations map[sharding.ShardID]uint32
	pins        int // states that are being sent as snapshots

	// versions are the written batches, with the applied indexes as of each.
	// Versions up to durable survive a power cut.
	versions []version
	durable  uint64

	product *product // the product's machine; nil if it is not used
}

// batch is work for the state machine: entries, or the beginning or end of a
// generation.
type batch struct {
	shard   sharding.ShardID
	entries []journal.Committed

	generation uint32
	install    *statefile.Install
	drop       bool
	slow       int // number of passes until the batch is done
}

type version struct {
	number  uint64
	applied map[sharding.ShardID]mark
}

// mark is the applied index of a generation of a shard.
type mark struct {
	generation uint32
	index      uint64
}

// state is the applied state of one shard.
type state struct {
	generation uint32
	index      uint64
	bound      uint64 // highest revision of activations
	entities   map[string]*entity
	log        []journal.Committed // all applied entries; log[i].Index = i+1
}

type entity struct {
	sequence journal.Sequence
	hash     journal.Hash
	module   journal.Digest // module of the entity's last record
	records  []record
	byID     map[journal.CommandID]journal.Sequence
}

// record holds the parts of a journal.Record that the checks need.
type record struct {
	id       journal.CommandID
	sequence journal.Sequence
	term     sharding.Term // term of its writer
	entry    sharding.Term // term of the raft entry that contained it
	hash     journal.Hash  // chain hash of the entity after it
}

func newMachine(n *node) *machine {
	m := &machine{n: n, shards: map[sharding.ShardID]*state{}, generations: map[sharding.ShardID]uint32{}}
	for _, s := range n.w.shards {
		m.begin(s, 0)
	}
	return m
}

// begin begins an empty generation of a shard.
func (m *machine) begin(s sharding.ShardID, generation uint32) {
	m.shards[s] = &state{generation: generation, entities: map[string]*entity{}}
}

// reopen returns the machine as it is after a restart, at the durable version
// and with the generations that the log recorded.
func (m *machine) reopen(watermark uint64, generations []statefile.Generation) (*machine, error) {
	out := newMachine(m.n)
	out.durable = watermark
	for _, v := range m.versions {
		if v.number > watermark {
			break
		}
		out.versions = append(out.versions, v)
	}
	for i := range generations {
		if err := out.revive(&generations[i], watermark); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// revive restores a generation from the written versions, or from the snapshot
// that it began with.
func (m *machine) revive(l *statefile.Generation, watermark uint64) error {
	m.begin(l.Shard, l.Generation)
	m.generations[l.Shard] = l.Generation
	written := m.appliedAt(watermark, l.Shard, l.Generation)
	if l.Gone || l.Install != nil && written < l.Install.Index {
		if l.Gone {
			return nil
		}
		if m.n.w.messages != nil {
			m.replay(l.Shard, l.Install.Index)
			return nil
		}
		return m.readIn(l.Shard, l.Generation, l.Install)
	}
	m.replay(l.Shard, written)
	return nil
}

// replay applies the entries of the log up to an index, without reporting their
// results.
func (m *machine) replay(s sharding.ShardID, index uint64) {
	product := m.product
	m.product = nil
	for _, e := range m.n.w.log[s][:index] {
		m.apply(s, e, nil)
	}
	m.product = product
}

// appliedAt returns the applied index of a generation of a shard as of a
// version.
func (m *machine) appliedAt(number uint64, s sharding.ShardID, generation uint32) (index uint64) {
	if m.n.w.messages != nil {
		return m.n.store.applied(s, generation, number)
	}
	for _, v := range m.versions {
		if at := v.applied[s]; v.number <= number && at.generation == generation {
			index = at.index
		}
	}
	return index
}

// Apply implements raftgroup.StateMachine.
func (m *machine) Apply(shard sharding.ShardID, entries []journal.Committed) {
	m.queue = append(m.queue, batch{shard: shard, entries: entries})
	for _, e := range entries {
		m.bytes += int64(len(e.Data))
	}
}

// Backlog implements raftgroup.StateMachine.
func (m *machine) Backlog() int64 { return m.bytes }

// Durable implements raftgroup.StateMachine.
func (m *machine) Durable(dst map[sharding.ShardID]uint64) uint64 {
	if m.product != nil {
		return m.product.durable(m, dst)
	}
	for _, s := range m.n.w.shards {
		if m.n.w.profile.snapshots || !m.n.w.joining[s] {
			dst[s] = m.appliedAt(m.durable, s, m.generations[s])
		}
	}
	return m.durable
}

// flush writes a batch. settle makes written versions durable later.
func (m *machine) flush() {
	v := version{number: 1, applied: map[sharding.ShardID]mark{}}
	if n := len(m.versions); n > 0 {
		v.number = m.versions[n-1].number + 1
	}
	if m.product != nil {
		var ok bool
		if v.number, ok = m.product.flush(m.n); !ok || m.n.w.messages != nil {
			return
		}
	}
	for _, s := range m.n.w.shards {
		v.applied[s] = mark{m.shards[s].generation, m.shards[s].index}
	}
	m.versions = append(m.versions, v)
}

func (m *machine) settle() {
	if m.n.w.messages != nil {
		m.n.store.settle()
		return
	}
	if n := len(m.versions); n > 0 && m.durable < m.versions[n-1].number {
		m.durable += 1 + m.n.w.rng.Uint64N(m.versions[n-1].number-m.durable)
	}
}

// pump applies at most n queued batches.
func (m *machine) pump(n int) {
	if m.work(); !m.n.up {
		return // the power failed while a snapshot was read
	}
	for ; n > 0 && len(m.queue) > 0; n-- {
		b := m.queue[0]
		if m.product != nil && m.product.machine.IsInstalling(b.shard) {
			return
		}
		if b.slow > 0 {
			m.queue[0].slow--
			continue
		}
		m.queue = m.queue[1:]
		if b.drop || b.install != nil {
			m.turnOver(b)
			continue
		}
		for _, e := range b.entries {
			m.bytes -= int64(len(e.Data))
			m.apply(b.shard, e, m.n.executors[b.shard])
		}
	}
}

// apply determines the result of one entry, which is the same on every node,
// and passes it to the executor.
func (m *machine) apply(shard sharding.ShardID, c journal.Committed, l *simExecutor) {
	s := m.shards[shard]
	if c.Index != s.index+1 {
		m.n.w.fail("I8: node %d shard %d: entry %d applied after %d", m.n.id, shard, c.Index, s.index)
		return
	}
	s.index = c.Index
	s.log = append(s.log, c)
	m.n.w.committed(m.n, shard, c)
	if len(c.Data) == 0 {
		if m.product != nil {
			m.product.apply(m.n, shard, c, nil)
		}
		if l != nil {
			bound := s.bound
			m.n.events = append(m.n.events, func() { l.noop(c.Term, bound) })
		}
		return
	}
	e, err := journal.DecodeEntry(c.Data)
	if err == nil && e.Fence != c.Term {
		err = fmt.Errorf("fence %d in term %d", e.Fence, c.Term)
	}
	var records []journal.Record
	revision, bindings := e.BindingsRevision()
	switch {
	case err == nil && bindings:
		s.bound = max(s.bound, revision)
		m.n.w.count.bindings++
	case err == nil && e.Kind == journal.EntrySnapshot:
		err = s.judgeSnapshot(e.Body)
	case err == nil && e.Kind == journal.EntryRecords:
		records, err = s.judge(e.Body)
	}
	if messages := m.n.w.messages; messages != nil {
		err = messages.ledger.judge(shard, c, e.Kind, e.Body, records, err)
	}
	if err == nil {
		for i := range records {
			m.checkModule(s, &records[i])
			s.take(&records[i], c.Term)
		}
	}
	if m.product != nil {
		m.product.apply(m.n, shard, c, err)
	}
	if l != nil {
		m.n.events = append(m.n.events, func() { l.decision(e.Fence, e.Proposal, err) })
	}
}

// checkModule checks that no entity runs an older module after a newer module,
// or a module that is newer than the revision in the shard's log.
func (m *machine) checkModule(s *state, r *journal.Record) {
	named := digest(s.bound)
	if bytes.Compare(r.Module[:], named[:]) > 0 {
		m.n.w.fail("a command of %s ran under revision %x, the log is at %d", r.Entity, r.Module[:8], s.bound)
	}
	if e := s.entities[r.Entity.ID]; e != nil && bytes.Compare(r.Module[:], e.module[:]) < 0 {
		m.n.w.fail("%s ran under revision %x after %x", r.Entity, r.Module[:8], e.module[:8])
	}
}
