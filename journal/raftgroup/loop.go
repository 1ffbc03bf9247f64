package raftgroup

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hostd/hostd/journal/raftgroup/recovery"
	"github.com/hostd/hostd/journal/raftgroup/wire"
	"github.com/hostd/hostd/sharding"
	pb "go.etcd.io/raft/v3/raftpb"
)

// Loop drives a Core with a log, a state machine, a clock and the network. Its
// methods may be called from any goroutine. It runs one goroutine for the turns
// and MaxSnapshotsOut goroutines that send snapshots.
type Loop struct {
	opts   Options
	driver *Driver
	core   *Core // the driver's core
	inbox  *inbox
	last   inboxWork

	published       atomic.Pointer[Stats]
	droppedMessages atomic.Uint64 // number of messages
	rejectedFrames  atomic.Uint64 // number of frames
	turns           atomic.Uint64 // ticks, from 1
	lag             atomic.Int64  // moving average of tick lateness, nanoseconds
	lastTick        time.Time     // used by the loop's goroutine

	stop     chan struct{}
	stopOnce sync.Once
	done     chan struct{}
	err      error // error with which the loop ended, valid after done

	sending  sending
	incoming chan struct{} // capacity MaxSnapshotsIn
}

// Start starts the recovered groups and the goroutine that drives them. The
// machine must be open, as of rec.Watermark.
func Start(rec *recovery.Recovered, opts Options) (*Loop, error) {
	driver, err := NewDriver(rec, opts)
	if err != nil {
		return nil, err
	}
	l := &Loop{
		opts:   opts.withDefaults(),
		driver: driver,
		core:   driver.core,
		inbox:  newInbox(),
		stop:   make(chan struct{}),
		done:   make(chan struct{}),
	}
	l.publish()
	l.turns.Store(1)
	l.startSnapshots()
	go l.run()
	return l, nil
}

// Propose queues a proposal made in the term of the fence. It does not block.
// Raft owns the data; the caller must not touch it again. If Propose returns an
// error the proposal has no effect. Otherwise it is applied, reported as
// dropped, or has an unknown outcome if the leadership ends.
func (l *Loop) Propose(shard sharding.ShardID, fence sharding.Term, proposal uint64, data []byte) error {
	if len(data) > l.opts.MaxEntryBytes {
		return ErrTooLarge
	}
	if l.opts.Machine.Backlog() > l.opts.MaxBacklogBytes {
		return ErrBusy
	}
	return l.inbox.Propose(queuedProposal{Shard: shard, Fence: fence, Number: proposal, Data: data}, l.opts.MaxQueueCount, l.opts.MaxQueueBytes)
}

// ReadIndex asks whether this replica leads the shard now. The answer goes to
// the sink with the token. ReadIndex does not block.
func (l *Loop) ReadIndex(shard sharding.ShardID, token uint64) error {
	return l.inbox.Put(func(w *inboxWork) error {
		if len(w.Reads) >= l.opts.MaxQueueCount {
			return ErrBusy
		}
		w.Reads = append(w.Reads, queuedRead{Shard: shard, Token: token})
		return nil
	})
}

// Receive handles a frame from a node. The loop owns the frame. Messages beyond
// the queue's bounds are dropped, which raft tolerates; an error means that the
// frame is malformed. The sender is recorded as the node of the replicas that
// sent the messages. Receive does not mark the node as alive; PeerAlive does.
func (l *Loop) Receive(from sharding.NodeID, frame []byte) error {
	overloaded := l.opts.Machine.Backlog() > 2*l.opts.MaxBacklogBytes
	var messages []receivedMessage
	err := wire.DecodeFrame(frame, func(m wire.Message) {
		// A follower that cannot keep up drops appends, so that the leader sends no
		// more than the follower can accept.
		if !overloaded || m.Raft.GetType() != pb.MsgApp || len(m.Raft.GetEntries()) == 0 {
			messages = append(messages, receivedMessage{From: from, Message: m})
		}
	})
	if err != nil {
		l.rejectedFrames.Add(1)
		return err
	}
	err = l.inbox.Put(func(w *inboxWork) error {
		if len(w.Messages)+len(messages) > l.opts.MaxQueueCount || w.Frames+int64(len(frame)) > l.opts.MaxQueueBytes && w.Frames > 0 {
			return ErrBusy
		}
		w.Frames += int64(len(frame))
		w.Messages = append(w.Messages, messages...)
		return nil
	})
	if errors.Is(err, ErrBusy) {
		l.droppedMessages.Add(uint64(len(messages)))
		return nil
	}
	return err
}

// Turns counts the loop's ticks, from 1. It does not advance while the loop is
// stuck, for example on a disk that does not respond. It does not block.
func (l *Loop) Turns() uint64 { return l.turns.Load() }

// lagTicks is the number of ticks that the moving average of Lag roughly
// covers.
const lagTicks = 16

// Lag is a moving average of how late the loop's ticks are. It does not block.
func (l *Loop) Lag() time.Duration { return time.Duration(l.lag.Load()) }

// recordLag updates Lag at the start of a tick.
func (l *Loop) recordLag(now time.Time) {
	if !l.lastTick.IsZero() {
		lag := l.lag.Load()
		l.lag.Store(lag + (int64(max(now.Sub(l.lastTick)-l.opts.Tick, 0))-lag)/lagTicks)
	}
	l.lastTick = now
}

// PeerAlive reports that a node is alive. Repeating it is cheap.
func (l *Loop) PeerAlive(node sharding.NodeID) { l.queuePeer(peerEvent{Node: node, Alive: true}) }

// PeerSuspected reports that a node is suspected: no byte arrived from it for
// about SuspectTicks, its loop is stuck, or a new incarnation of the node was
// seen, which means that its previous process has ended. Groups led from that
// node elect another leader, and leaders on this node that have no quorum
// without that node step down. The loop does not detect silent nodes itself.
func (l *Loop) PeerSuspected(node sharding.NodeID) { l.queuePeer(peerEvent{Node: node}) }

// PeerFailed reports that the process of a node seems to have failed, see
// Core.PeerFailed. The report is a hint; if it is wrong, a call of PeerAlive
// follows.
func (l *Loop) PeerFailed(node sharding.NodeID) { l.queuePeer(peerEvent{Node: node, Failed: true}) }

// queuePeer queues an event. A stopped loop ignores it.
func (l *Loop) queuePeer(e peerEvent) {
	_ = l.inbox.Put(func(w *inboxWork) error { w.AddPeer(e); return nil })
}

// maxCalls bounds the calls queued for the loop.
const maxCalls = 1024

// call runs fn on the loop's goroutine and waits for its result.
func (l *Loop) call(fn func() error) error {
	result := make(chan error, 1)
	err := l.inbox.Put(func(w *inboxWork) error {
		if len(w.Calls) >= maxCalls {
			return ErrBusy
		}
		w.Calls = append(w.Calls, func() { result <- fn() })
		return nil
	})
	if err != nil {
		return err
	}
	select {
	case err := <-result:
		return err
	case <-l.done:
		select {
		case err := <-result:
			return err
		default:
			return ErrStopped
		}
	}
}

// CreateGroups creates replicas that never held data, and returns when their
// creation is durable. Either all or none of them are created.
func (l *Loop) CreateGroups(configs []GroupConfig) error {
	if len(configs) == 0 {
		return nil
	}
	return l.call(func() error {
		err, logged := l.driver.Create(configs)
		if logged {
			l.err = err // the loop ends with this error
		}
		return err
	})
}

// TransferLeader requests the transfer of a shard's leadership to another
// replica. It returns before the transfer happens. The transfer may fail, and
// is not attempted while that replica's node is suspected.
func (l *Loop) TransferLeader(shard sharding.ShardID, to sharding.ReplicaID) error {
	return l.call(func() error { return l.core.TransferLeader(shard, to) })
}

// ChangeMembers proposes a membership change, fenced like a proposal. Status
// shows when it has been applied.
func (l *Loop) ChangeMembers(shard sharding.ShardID, fence sharding.Term, change Change) error {
	return l.call(func() error { return l.core.ChangeMembers(shard, fence, change) })
}

// Status describes a shard's replica.
func (l *Loop) Status(shard sharding.ShardID) (s Status, err error) {
	err = l.call(func() (err error) { s, err = l.core.Status(shard); return err })
	return s, err
}

// Statuses describes all replicas, sorted by shard.
func (l *Loop) Statuses() (s []Status, err error) {
	err = l.call(func() error { s = l.core.statuses(); return nil })
	return s, err
}

// Err returns the error with which the loop ended. It returns nil while the
// loop runs, and after Close.
func (l *Loop) Err() error {
	select {
	case <-l.done:
		return l.err
	default:
		return nil
	}
}

// Close stops the loop after its current turn, and waits until the loop has
// ended or ctx ends. Proposals that are not applied have an unknown outcome.
// The log is left synced and open.
func (l *Loop) Close(ctx context.Context) error {
	l.stopOnce.Do(func() { close(l.stop) })
	select {
	case <-l.sending.done:
		return l.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// run is the loop's goroutine. It runs cycle until Close or a log error, writes
// a final record if the log still works, rejects the queued requests, and
// reports the error.
func (l *Loop) run() {
	defer close(l.done)
	defer l.stopSnapshots()
	ticker := l.opts.NewTicker(l.opts.Tick)
	defer ticker.Stop()
	err := l.cycle(ticker)
	if err == nil {
		err = l.driver.finalRecord()
	}
	l.rejectQueued(l.inbox.Close())
	if err != nil {
		l.err = fmt.Errorf("raft groups stopped: %w", err)
		l.opts.OnFatal(l.err)
	}
}

// cycle repeats: wait for input, drain the inbox, run one turn. The drain is
// bounded by the inbox, so ticks and stop are checked at least once per turn.
//
//	            ┌────────────── busy: do not wait ──────────────┐
//	            ▼                                               │
//	wait (stop, tick, inbox) ─▶ yield ─▶ drain inbox ─▶ turn, if there is work
//	            │                                               │
//	            └─ stop ─▶ final record ─▶ reject queued        └─ log error ─▶ Fatal
//
// Before it drains, the loop yields to goroutines that are ready to run. They
// are likely to add work, and a turn with many inputs costs about as much as a
// turn with one. Inputs are drained in a fixed order: liveness events, stopped
// replicas, messages, proposals, reads, calls. A log error is final: nothing is
// acknowledged after it, since the log may hold less than memory does.
func (l *Loop) cycle(ticker Ticker) error {
	others := yield{Now: l.opts.Now}
	for {
		if l.core.HasWork() {
			select {
			case <-l.stop:
				return nil
			case <-ticker.C():
				if err := l.tick(); err != nil {
					return err
				}
			default:
			}
		} else {
			select {
			case <-l.stop:
				return nil
			case <-ticker.C():
				if err := l.tick(); err != nil {
					return err
				}
			case <-l.inbox.Wake():
			}
		}
		others.Gosched()
		l.drain()
		if l.err != nil {
			return l.err
		}
		if l.core.HasWork() {
			if err := l.driver.Turn(); err != nil {
				return err
			}
		}
	}
}

func (l *Loop) tick() error {
	l.recordLag(l.opts.Now())
	err := l.driver.Tick()
	l.publish()
	l.turns.Add(1)
	return err
}

// drain passes all queued inputs to the core.
func (l *Loop) drain() {
	l.last = l.inbox.Take(l.last)
	w := &l.last
	for _, e := range w.Peers {
		switch {
		case e.Alive:
			l.core.PeerAlive(e.Node)
		case e.Failed:
			l.core.PeerFailed(e.Node)
		default:
			l.core.PeerSuspected(e.Node)
		}
	}
	for _, s := range w.Stopped {
		l.core.replicaStopped(s)
	}
	for i := range w.Messages {
		l.core.Step(w.Messages[i].From, w.Messages[i].Message)
	}
	for i := range w.Proposals {
		p := &w.Proposals[i]
		if err := l.core.Propose(p.Shard, p.Fence, p.Number, p.Data); err != nil {
			l.opts.Sink.ProposalDropped(p.Shard, p.Fence, p.Number, err)
		}
	}
	for _, r := range w.Reads {
		if err := l.core.ReadIndex(r.Shard, r.Token); err != nil {
			l.opts.Sink.ReadFailed(r.Shard, r.Token, err)
		}
	}
	for _, fn := range w.Calls {
		if l.err == nil {
			fn()
		}
	}
}

// rejectQueued fails the requests that no turn will process. Proposals that raft
// already holds keep an unknown outcome.
func (l *Loop) rejectQueued(w inboxWork) {
	dropped, reads := l.core.abandon()
	for _, p := range dropped {
		l.opts.Sink.ProposalDropped(p.Shard, p.Fence, p.Proposal, p.Err)
	}
	for _, r := range reads {
		l.opts.Sink.ReadFailed(r.Shard, r.Token, r.Err)
	}
	for _, p := range w.Proposals {
		l.opts.Sink.ProposalDropped(p.Shard, p.Fence, p.Number, ErrStopped)
	}
	for _, r := range w.Reads {
		l.opts.Sink.ReadFailed(r.Shard, r.Token, ErrStopped)
	}
}
