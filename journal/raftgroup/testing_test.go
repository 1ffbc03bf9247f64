package raftgroup

import (
	"errors"
	"maps"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/disk/disktest"
	"github.com/hostd/hostd/journal/raftgroup/recovery"
	"github.com/hostd/hostd/journal/wal"
	"github.com/hostd/hostd/sharding"
)

var _ Log = (*wal.Log)(nil)

// machine is an in-memory state machine. It records its input, checks the
// order, and reports how much of the input would survive a power cut.
type machine struct {
	mu      sync.Mutex
	entries map[sharding.ShardID][]journal.Committed
	applied map[sharding.ShardID]uint64
	durable map[sharding.ShardID]uint64 // durable indexes as of watermark
	mark    uint64
	flushes []map[sharding.ShardID]uint64 // durable indexes as of watermark 1, 2, …
	backlog int64
	faults  []error
}

func newMachine() *machine {
	return &machine{entries: map[sharding.ShardID][]journal.Committed{}, applied: map[sharding.ShardID]uint64{}, durable: map[sharding.ShardID]uint64{}}
}

func (m *machine) Apply(shard sharding.ShardID, entries []journal.Committed) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, e := range entries {
		if e.Index != m.applied[shard]+1 {
			m.faults = append(m.faults, errors.New("an entry is missing or twice"))
		}
		m.applied[shard] = e.Index
	}
	m.entries[shard] = append(m.entries[shard], entries...)
}

func (m *machine) Backlog() int64 { return m.backlog }

func (m *machine) Durable(dst map[sharding.ShardID]uint64) uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.Copy(dst, m.durable)
	return m.mark
}

// flush makes everything applied so far durable.
func (m *machine) flush() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.durable = maps.Clone(m.applied)
	m.flushes = append(m.flushes, m.durable)
	m.mark++
}

// reopen returns the machine after its process ended, as of the watermark in
// the log.
func (m *machine) reopen(watermark uint64) *machine {
	n := newMachine()
	n.mark, n.flushes = watermark, m.flushes[:watermark:watermark]
	if watermark > 0 {
		n.durable = maps.Clone(m.flushes[watermark-1])
	}
	n.applied = maps.Clone(n.durable)
	for shard, entries := range m.entries {
		n.entries[shard] = append([]journal.Committed(nil), entries[:n.durable[shard]]...)
	}
	return n
}

func (m *machine) data(shard sharding.ShardID) (out []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, e := range m.entries[shard] {
		if len(e.Data) > 0 {
			out = append(out, string(e.Data))
		}
	}
	return out
}

func (m *machine) index(shard sharding.ShardID) uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.applied[shard]
}

// sink records the calls it receives.
type sink struct {
	mu      sync.Mutex
	leaders map[sharding.ShardID]leaderChange
	quorums map[sharding.ShardID]bool
	dropped []droppedProposal
	reads   map[uint64]readResult
}

func newSink() *sink {
	return &sink{leaders: map[sharding.ShardID]leaderChange{}, quorums: map[sharding.ShardID]bool{}, reads: map[uint64]readResult{}}
}

func (s *sink) LeaderChanged(shard sharding.ShardID, term sharding.Term, leader sharding.ReplicaID, self bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leaders[shard] = leaderChange{shard, term, leader, self}
}

func (s *sink) QuorumChanged(shard sharding.ShardID, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.quorums[shard] = ok
}

func (s *sink) quorum(shard sharding.ShardID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.quorums[shard]
}

func (s *sink) ProposalDropped(shard sharding.ShardID, fence sharding.Term, proposal uint64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropped = append(s.dropped, droppedProposal{shard, fence, proposal, err})
}

func (s *sink) ReadConfirmed(shard sharding.ShardID, token uint64, index uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reads[token] = readResult{shard, token, index, nil}
}

func (s *sink) ReadFailed(shard sharding.ShardID, token uint64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reads[token] = readResult{shard, token, 0, err}
}

func (s *sink) leader(shard sharding.ShardID) leaderChange {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.leaders[shard]
}

func (s *sink) read(token uint64) (readResult, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, ok := s.reads[token]
	return r, ok
}

func (s *sink) drops() []droppedProposal {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]droppedProposal(nil), s.dropped...)
}

// handTicker ticks when the test sends to it.
type handTicker chan time.Time

func (t handTicker) C() <-chan time.Time { return t }
func (t handTicker) Stop()               {}

// single is a node with single-replica groups on a disk that loses unsynced
// data.
type single struct {
	t       testing.TB
	fs      *disktest.Crashable
	log     *wal.Log
	machine *machine
	sink    *sink
	ticker  handTicker
	rec     *recovery.Recovered
	loop    *Loop
	fatal   chan error
	walOpts wal.Options
	opts    Options
}

func newSingle(t testing.TB, opts Options) *single {
	if opts.MaxRecordBytes == 0 {
		opts.MaxRecordBytes = 16 << 10 // the segments are small
	}
	n := &single{t: t, opts: opts}
	n.prepare()
	n.start()
	return n
}

// prepare creates an empty node.
func (n *single) prepare() {
	n.fs, n.machine = disktest.NewCrashable(rand.New(rand.NewPCG(1, 2))), newMachine()
	n.walOpts = wal.Options{SegmentBytes: 64 << 10, Rand: func() uint64 { return 7 }}
}

func (n *single) start() {
	n.t.Helper()
	if err := n.tryStart(); err != nil {
		n.t.Fatal(err)
	}
}

func (n *single) tryStart() error {
	log, err := wal.Open(n.fs, "wal", n.walOpts)
	if err != nil {
		return err
	}
	if n.rec, err = recovery.Recover(log); err != nil {
		return err
	}
	n.machine = n.machine.reopen(n.rec.Watermark)
	n.log, n.sink, n.ticker, n.fatal = log, newSink(), make(handTicker), make(chan error, 1)
	opts := n.opts
	opts.Log, opts.Machine, opts.Sink = log, n.machine, n.sink
	opts.AppliedIndex = n.machine.index
	if opts.NewTicker == nil {
		opts.NewTicker = func(time.Duration) Ticker { return n.ticker }
	}
	opts.OnFatal = func(err error) { n.fatal <- err }
	n.loop, err = Start(n.rec, opts)
	return err
}

// stop ends the loop like a clean shutdown.
func (n *single) stop() {
	n.t.Helper()
	if err := n.loop.Close(n.t.Context()); err != nil {
		n.t.Fatal(err)
	}
	if err := n.log.Close(); err != nil {
		n.t.Fatal(err)
	}
}

// crash cuts the power: the disk loses unsynced data at random.
func (n *single) crash() {
	n.loop.Close(n.t.Context())
	n.fs.Crash()
}

// eventually waits for a condition that must become true.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(50 * time.Microsecond) {
		if time.Now().After(deadline) {
			t.Fatalf("did not happen: %s", what)
		}
	}
}

// lead waits until the node leads the shard and has applied its term's no-op.
func (n *single) lead(shard sharding.ShardID) sharding.Term {
	n.t.Helper()
	var term sharding.Term
	eventually(n.t, "leadership", func() bool {
		c := n.sink.leader(shard)
		term = c.Term
		n.machine.mu.Lock()
		defer n.machine.mu.Unlock()
		e := n.machine.entries[shard]
		return c.Self && len(e) > 0 && e[len(e)-1].Term == term
	})
	return term
}

func one(shards ...sharding.ShardID) (out []GroupConfig) {
	for _, s := range shards {
		id := sharding.ReplicaID(100 + s)
		out = append(out, GroupConfig{Shard: s, Replica: id, Voters: []sharding.ReplicaID{id}})
	}
	return out
}
