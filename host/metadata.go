package host

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/eventlog"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/meta"
)

// errMetaOutcome: the command was in flight when leadership of the metadata
// shard changed. Commands of the metadata shard may be sent again.
var errMetaOutcome = errors.New("the outcome of the metadata command is unknown")

// metaLog is what a metadata command travels through.
type metaLog interface {
	Propose(shard sharding.ShardID, fence sharding.Term, proposal uint64, data []byte) error
	ReadIndex(shard sharding.ShardID, token uint64) error
}

// metadata proposes commands to the metadata shard and waits for what its
// state machine answers. It holds at most one waiter per proposal; callers
// bound themselves by their contexts.
type metadata struct {
	state *meta.State

	mu      sync.Mutex
	log     metaLog
	elected sharding.Term // this node was elected in it; 0 when it does not lead
	noop    sharding.Term // highest term whose first entry is applied
	next    uint64
	tokens  uint64
	waiting map[uint64]chan metaOutcome // by proposal of the elected term
	reading map[uint64]chan error       // by token
	changed chan struct{}               // closed and replaced when leading or the state changes
}

type metaOutcome struct {
	result []byte
	err    error
}

func newMetadata(state *meta.State) *metadata {
	return &metadata{
		state: state, waiting: make(map[uint64]chan metaOutcome),
		reading: make(map[uint64]chan error), changed: make(chan struct{}),
	}
}

// start gives the metadata its log; nothing can be proposed before.
func (m *metadata) start(log metaLog) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.log = log
}

func (m *metadata) announce() {
	close(m.changed)
	m.changed = make(chan struct{})
}

// watch returns a channel that is closed at the next change of leadership or
// state.
func (m *metadata) watch() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.changed
}

func (m *metadata) leads() bool { return m.log != nil && m.elected != 0 && m.elected == m.noop }

// do proposes a command, waiting for leadership first, and returns what the
// state machine answered.
func (m *metadata) do(ctx context.Context, command []byte) (meta.Result, error) {
	for {
		m.mu.Lock()
		if m.leads() {
			break
		}
		changed := m.changed
		m.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return meta.Result{}, fmt.Errorf("metadata: %w", &sharding.NotLeaderError{Shard: sharding.MetaShard})
		}
	}
	m.next++
	number, ch := m.next, make(chan metaOutcome, 1)
	m.waiting[number] = ch
	entry := append(journal.AppendEntryHeader(nil, journal.EntryMeta, m.elected, number), command...)
	err := m.log.Propose(sharding.MetaShard, m.elected, number, entry)
	if err != nil {
		delete(m.waiting, number)
	}
	m.mu.Unlock()
	if err != nil {
		return meta.Result{}, fmt.Errorf("metadata: %w", err)
	}
	select {
	case out := <-ch:
		if out.err != nil {
			return meta.Result{}, fmt.Errorf("metadata: %w", out.err)
		}
		return meta.DecodeResult(out.result)
	case <-ctx.Done():
		return meta.Result{}, fmt.Errorf("metadata: %w: %w", errMetaOutcome, ctx.Err())
	}
}

// LeaderChanged implements region.Metadata.
func (m *metadata) LeaderChanged(term sharding.Term, self bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if self && term == m.elected {
		return
	}
	m.elected = 0
	if self {
		m.elected = term
	}
	m.next = 0
	for n, ch := range m.waiting {
		ch <- metaOutcome{err: errMetaOutcome}
		delete(m.waiting, n)
	}
	m.announce()
}

// Applied implements region.Metadata.
func (m *metadata) Applied(v eventlog.Verdict) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if v.NoOp {
		m.noop = max(m.noop, v.Term)
	} else if v.Fence == m.elected {
		if ch := m.waiting[v.Proposal]; ch != nil {
			ch <- metaOutcome{result: v.Meta, err: v.Err}
			delete(m.waiting, v.Proposal)
		}
	}
	m.announce()
}

// Dropped implements region.Metadata.
func (m *metadata) Dropped(fence sharding.Term, proposal uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if ch := m.waiting[proposal]; ch != nil && fence == m.elected {
		ch <- metaOutcome{err: &sharding.NotLeaderError{Shard: sharding.MetaShard, Term: fence}}
		delete(m.waiting, proposal)
	}
}

// ReadConfirmed implements region.Metadata.
func (m *metadata) ReadConfirmed(token uint64) { m.read(token, nil) }

// ReadFailed implements region.Metadata.
func (m *metadata) ReadFailed(token uint64) {
	m.read(token, &sharding.NotLeaderError{Shard: sharding.MetaShard})
}

func (m *metadata) read(token uint64, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if ch := m.reading[token]; ch != nil {
		ch <- err
		delete(m.reading, token)
	}
}

// metaMachine lets the journal apply metadata commands.
type metaMachine struct{ state *meta.State }

func (a metaMachine) Apply(index uint64, body []byte) ([]eventlog.KV, []byte) {
	writes, result := a.state.Apply(index, body)
	out := make([]eventlog.KV, len(writes))
	for i, w := range writes {
		out[i] = eventlog.KV{Key: w.Key, Value: w.Value}
	}
	return out, result
}

func (a metaMachine) Restore(key, value []byte) error { return a.state.Restore(key, value) }
