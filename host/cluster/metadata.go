package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hostd/hostd/host/peer"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/eventlog"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/meta"
)

// log is the raft log of the metadata shard on the node that leads it.
type log interface {
	Propose(shard sharding.ShardID, fence sharding.Term, proposal uint64, data []byte) error
	ReadIndex(shard sharding.ShardID, token uint64) error
}

// remote calls the node that leads the metadata shard if that is a different
// node.
type remote interface {
	// Propose has node run a command and returns the state machine's result. An
	// error that wraps a *sharding.NotLeaderError or peer.ErrUnavailable means
	// that the command had no effect. After any other error the outcome is
	// unknown.
	Propose(ctx context.Context, node sharding.NodeID, command []byte) (result []byte, err error)
	// ReadMeta returns an index of the metadata shard that is not below any
	// index committed before the call.
	ReadMeta(ctx context.Context, node sharding.NodeID) (index uint64, err error)
	// IsAlive reports whether this node hears from another node. If not, a
	// leader on that node does not count as the metadata shard's leader
	// here.
	IsAlive(node sharding.NodeID) bool
}

// retryPause is the pause between two attempts to reach the metadata leader.
const retryPause = 50 * time.Millisecond

// locator knows which node holds a replica.
type locator interface {
	Locate(sharding.ShardID, sharding.ReplicaID) (sharding.NodeID, bool)
}

// Metadata reads and writes the metadata shard from any node. It holds at most
// one waiter per proposal and per read. Callers bound their waits with
// contexts. It is safe for concurrent use.
type Metadata struct {
	state *meta.State
	nodes locator

	confirmation confirmation
	contact      contact

	mu      sync.Mutex
	log     log
	remote  remote
	leader  sharding.ReplicaID
	elected sharding.Term // the term in which this node was elected; 0 if it does not lead
	noop    sharding.Term // highest term whose first entry is applied
	applied uint64        // applied index of the metadata shard
	stopped error         // why this node's replica has stopped applying; nil if it has not
	next    uint64
	tokens  uint64
	waiting map[uint64]chan outcome // by proposal number of the elected term
	reading map[uint64]chan read    // by token
	changed chan struct{}           // closed and replaced when leadership or the state changes
}

// outcome is the result of a proposal.
type outcome struct {
	result []byte
	err    error
}

// read is the result of a ReadIndex: the confirmed index, or an error.
type read struct {
	index uint64
	err   error
}

// NewMetadata returns a Metadata that serves the views of state, whose applied
// index is applied.
func NewMetadata(state *meta.State, applied uint64) *Metadata {
	m := &Metadata{
		state: state, applied: applied, confirmation: confirmation{turn: make(chan struct{}, 1)},
		waiting: map[uint64]chan outcome{}, reading: map[uint64]chan read{}, changed: make(chan struct{}),
	}
	m.contact.open(time.Now)
	return m
}

// Start sets the log and the connection to other nodes. Nothing can be
// proposed before Start. nodes knows the nodes of the metadata replicas.
func (m *Metadata) Start(log log, remote remote, nodes locator) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.log, m.remote, m.nodes = log, remote, nodes
	m.announce()
}

// View returns the metadata as applied on this node. It may be stale.
func (m *Metadata) View() *meta.View { return m.state.View() }

// ClusterVersion returns the cluster version as applied on this node. It may be stale.
func (m *Metadata) ClusterVersion() sharding.ClusterVersion { return m.state.ClusterVersion() }

// Voters returns the nodes of a shard's voters.
func (m *Metadata) Voters(shard sharding.ShardID) []sharding.NodeID {
	return votersOf(m.View(), shard)
}

// AppliedIndex returns this node's applied index of the metadata shard.
func (m *Metadata) AppliedIndex() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.applied
}

// Changed returns a channel that is closed at the next change of leadership or
// state. Call it before reading the state, so that no change is missed.
func (m *Metadata) Changed() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.changed
}

// announce notifies the readers of changed. m.mu must be held.
func (m *Metadata) announce() {
	close(m.changed)
	m.changed = make(chan struct{})
}

// leads reports whether this node leads the metadata shard and has applied its
// term's first entry. A stopped replica does not lead, because its state is
// stale. m.mu must be held.
func (m *Metadata) leads() bool {
	return m.log != nil && m.elected != 0 && m.elected == m.noop && m.stopped == nil
}

// stopError returns why this node's replica of the metadata shard has stopped
// applying, or nil if it has not. The view of a stopped replica is stale, so
// nothing may be created, changed or removed because of it.
func (m *Metadata) stopError() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.stopped
}

// Leads returns whether this node leads the metadata shard, and the term.
func (m *Metadata) Leads() (sharding.Term, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.elected, m.leads()
}

// Leader returns the node that leads the metadata shard, as far as this node
// knows.
func (m *Metadata) Leader() (sharding.NodeID, bool) {
	m.mu.Lock()
	leader, nodes := m.leader, m.nodes
	m.mu.Unlock()
	if leader == 0 || nodes == nil {
		return "", false
	}
	return nodes.Locate(sharding.MetaShard, leader)
}

// Do runs a command, on this node or on the leader of the metadata shard, and
// returns the state machine's result. It waits for a leader until ctx ends, and
// for at most request.LeaderPatience if a caller waits. If the error wraps
// ErrUnknownOutcome, the command may have taken effect; any other error
// means that it had no effect.
func (m *Metadata) Do(ctx context.Context, command []byte) (meta.Result, error) {
	began := time.Now()
	for {
		result, err := m.attempt(ctx, command)
		switch {
		case err == nil:
			return meta.DecodeResult(result)
		case !isRetriable(err):
			return meta.Result{}, fmt.Errorf("metadata: %w", err)
		}
		if err := m.pause(ctx, began, err); err != nil {
			return meta.Result{}, fmt.Errorf("metadata: %w", err)
		}
	}
}

// isRetriable reports whether an error means that the command had no effect and
// another attempt may succeed.
func isRetriable(err error) bool {
	var elsewhere *sharding.NotLeaderError
	return errors.As(err, &elsewhere) || errors.Is(err, peer.ErrUnavailable)
}

// pause waits for retryPause or until leadership or state changes. It returns
// reason if ctx ends, or if a caller has been waiting since began for longer
// than request.LeaderPatience.
func (m *Metadata) pause(ctx context.Context, began time.Time, reason error) error {
	if request.HasCaller(ctx) && time.Since(began) > request.LeaderPatience {
		return reason
	}
	changed := m.Changed()
	wait := time.NewTimer(retryPause)
	defer wait.Stop()
	select {
	case <-changed:
	case <-wait.C:
	case <-ctx.Done():
		return reason
	}
	return nil
}

func (m *Metadata) attempt(ctx context.Context, command []byte) ([]byte, error) {
	m.mu.Lock()
	leads, remote := m.leads(), m.remote
	m.mu.Unlock()
	if leads {
		return m.doHere(ctx, command)
	}
	node, known := m.Leader()
	if !known || remote == nil {
		return nil, &sharding.NotLeaderError{Shard: sharding.MetaShard}
	}
	ctx, done := m.whileAlive(ctx, remote, node)
	defer done()
	result, err := remote.Propose(ctx, node, command)
	err = m.excludedError(err)
	if err != nil && !isRetriable(err) && !errors.Is(err, peer.ErrRefused) {
		err = fmt.Errorf("%w: %w", ErrUnknownOutcome, err)
	}
	return result, err
}

// whileAlive returns a context that ends when this node no longer hears from
// node. Otherwise a call to node would wait until its deadline. done stops
// the goroutine that watches the node and must be called.
func (m *Metadata) whileAlive(ctx context.Context, remote remote, node sharding.NodeID) (heard context.Context, done func()) {
	heard, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for heard.Err() == nil {
			changed := m.Changed()
			if leader, known := m.Leader(); (!known || leader != node) && !remote.IsAlive(node) {
				cancel()
				return
			}
			select {
			case <-changed:
			case <-heard.Done():
			}
		}
	}()
	return heard, func() {
		cancel()
		<-ended
	}
}

// doHere runs a command as the leader of the metadata shard. If this node does
// not lead, it fails with a *sharding.NotLeaderError and has no effect. A
// command that is invalid fails with meta.ErrInvalid and is not proposed,
// because replicas stop at an entry that they cannot apply.
func (m *Metadata) doHere(ctx context.Context, command []byte) ([]byte, error) {
	if err := meta.Check(command); err != nil {
		return nil, err
	}
	m.mu.Lock()
	if !m.leads() {
		m.mu.Unlock()
		return nil, m.notLeader()
	}
	m.next++
	number, ch := m.next, make(chan outcome, 1)
	m.waiting[number] = ch
	entry := append(journal.AppendEntryHeader(nil, journal.EntryMeta, m.elected, number), command...)
	err := m.log.Propose(sharding.MetaShard, m.elected, number, entry)
	if err != nil {
		delete(m.waiting, number)
	}
	m.mu.Unlock()
	if err != nil {
		return nil, refusedProposal(err)
	}
	select {
	case out := <-ch:
		return out.result, out.err
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w", ErrUnknownOutcome, ctx.Err())
	}
}

func (m *Metadata) notLeader() error {
	node, _ := m.Leader()
	return &sharding.NotLeaderError{Shard: sharding.MetaShard, Leader: node}
}

// CatchUp waits until this node has applied everything that the metadata shard
// had committed before the call. It waits for a leader as long as Do does.
func (m *Metadata) CatchUp(ctx context.Context) error {
	began := time.Now()
	for {
		asked := m.contact.now()
		index, err := m.readIndex(ctx)
		if err == nil {
			return m.reach(ctx, asked, index)
		}
		if isExcluded(err) {
			return fmt.Errorf("read the metadata: %w", err) // the node has to join first
		}
		// A read has no effect, so it can be retried after any error.
		if err := m.pause(ctx, began, err); err != nil {
			return fmt.Errorf("read the metadata: %w", err)
		}
	}
}

func (m *Metadata) readIndex(ctx context.Context) (uint64, error) {
	m.mu.Lock()
	leads, remote := m.leads(), m.remote
	m.mu.Unlock()
	if leads {
		return m.readHere(ctx)
	}
	node, known := m.Leader()
	if !known || remote == nil {
		return 0, m.notLeader()
	}
	call, done := m.whileAlive(ctx, remote, node)
	defer done()
	index, err := remote.ReadMeta(call, node)
	if err != nil && call.Err() != nil && ctx.Err() == nil {
		return 0, m.notLeader() // the leader's node is suspected
	}
	return index, m.excludedError(err)
}

// isExcluded reports whether the leader does not regard this node as a member, or
// regards it as put down.
func isExcluded(err error) bool {
	return errors.Is(err, peer.ErrNotMember) || errors.Is(err, peer.ErrPutDown)
}

// excludedError converts an error for which isExcluded is true into the error
// that callers see: the metadata shard has no leader that this node can ask,
// and nothing was done.
func (m *Metadata) excludedError(err error) error {
	if !isExcluded(err) {
		return err
	}
	return fmt.Errorf("%w: %w", m.notLeader(), err)
}

// readHere confirms with a ReadIndex that this node still leads the metadata
// shard and returns the index that a reader must have applied.
func (m *Metadata) readHere(ctx context.Context) (uint64, error) {
	ch := make(chan read, 1)
	m.mu.Lock()
	if !m.leads() {
		m.mu.Unlock()
		return 0, m.notLeader()
	}
	m.tokens++
	token := m.tokens
	m.reading[token] = ch
	err := m.log.ReadIndex(sharding.MetaShard, token)
	m.mu.Unlock()
	if err == nil {
		select {
		case r := <-ch:
			return r.index, r.err
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	m.mu.Lock()
	delete(m.reading, token)
	m.mu.Unlock()
	return 0, err
}

// Await waits until this node's applied index is at least index.
func (m *Metadata) Await(ctx context.Context, index uint64) error {
	for {
		m.mu.Lock()
		done, stopped, changed := m.applied >= index, m.stopped, m.changed
		m.mu.Unlock()
		if done {
			return nil
		}
		if stopped != nil {
			return fmt.Errorf("catch up with the metadata: %w", stopped)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("catch up with the metadata: %w", ctx.Err())
		}
	}
}

// LeaderChanged implements entity.MetadataRequests.
func (m *Metadata) LeaderChanged(term sharding.Term, leader sharding.ReplicaID, self bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.leader = leader
	if self && term == m.elected {
		return
	}
	m.elected = 0
	if self {
		m.elected = term
	}
	m.next = 0
	m.lose(ErrUnknownOutcome)
	m.announce()
}

// lose fails all proposals that wait. m.mu must be held.
func (m *Metadata) lose(err error) {
	for n, ch := range m.waiting {
		ch <- outcome{err: err}
		delete(m.waiting, n)
	}
}

// OnApplied implements entity.MetadataRequests.
func (m *Metadata) OnApplied(v eventlog.ApplyResult) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if errors.Is(v.Err, eventlog.ErrStopped) {
		m.stopped = v.Err
		m.lose(refusedEntry(v.Err))
		m.announce()
		return
	}
	m.applied = v.Index
	if v.NoOp {
		m.noop = max(m.noop, v.Term)
	} else if v.Fence == m.elected {
		if ch := m.waiting[v.Proposal]; ch != nil {
			ch <- outcome{result: v.Meta, err: refusedEntry(v.Err)}
			delete(m.waiting, v.Proposal)
		}
	}
	m.announce()
}

// Reset resets the applied index and leadership because this node's metadata
// replica was removed and a new replica starts.
func (m *Metadata) Reset() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.applied, m.leader, m.elected, m.noop, m.stopped = 0, 0, 0, 0, nil
	m.announce()
}

// OnInstalled is called when the state was replaced by a snapshot, or, if stopped
// is not nil, when this node's replica stopped because it cannot read the
// snapshot.
func (m *Metadata) OnInstalled(index uint64, stopped error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stopped = stopped; stopped == nil {
		m.applied = index
	} else {
		m.lose(refusedEntry(stopped))
	}
	m.announce()
}

// OnDropped implements entity.MetadataRequests.
func (m *Metadata) OnDropped(fence sharding.Term, proposal uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if ch := m.waiting[proposal]; ch != nil && fence == m.elected {
		ch <- outcome{err: &sharding.NotLeaderError{Shard: sharding.MetaShard, Term: fence}}
		delete(m.waiting, proposal)
	}
}

// ReadConfirmed implements entity.MetadataRequests.
func (m *Metadata) ReadConfirmed(token, index uint64) { m.answer(token, read{index: index}) }

// ReadFailed implements entity.MetadataRequests.
func (m *Metadata) ReadFailed(token uint64) {
	m.answer(token, read{err: &sharding.NotLeaderError{Shard: sharding.MetaShard}})
}

func (m *Metadata) answer(token uint64, r read) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if ch := m.reading[token]; ch != nil {
		ch <- r
		delete(m.reading, token)
	}
}

// Machine applies metadata commands of the journal to a state.
type Machine struct{ State *meta.State }

// Apply implements eventlog.Metadata.
func (a Machine) Apply(index uint64, body []byte) ([]eventlog.KV, []byte, error) {
	writes, result, err := a.State.Apply(index, body)
	if err != nil {
		return nil, nil, asUnsupported(err)
	}
	out := make([]eventlog.KV, len(writes))
	for i, w := range writes {
		out[i] = eventlog.KV{Key: w.Key, Value: w.Value}
	}
	return out, result, nil
}

// Replace implements eventlog.Metadata.
func (a Machine) Replace(index uint64, restore func(put func(key, value []byte) error) error) error {
	var pairs []meta.KV
	err := restore(func(key, value []byte) error {
		pairs = append(pairs, meta.KV{Key: bytes.Clone(key), Value: bytes.Clone(value)})
		return nil
	})
	if err != nil {
		return err
	}
	return asUnsupported(a.State.Load(index, pairs))
}

// asUnsupported marks an error as journal.ErrUnsupported if only a later release
// can read the data.
func asUnsupported(err error) error {
	if errors.Is(err, meta.ErrUnsupported) {
		return fmt.Errorf("%w: %w", journal.ErrUnsupported, err)
	}
	return err
}
