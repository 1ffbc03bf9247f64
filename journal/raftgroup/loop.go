package raftgroup

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hostd/hostd/journal/raftgroup/inbox"
	"github.com/hostd/hostd/journal/raftgroup/recovery"
	"github.com/hostd/hostd/journal/raftgroup/wire"
	"github.com/hostd/hostd/sharding"
	pb "go.etcd.io/raft/v3/raftpb"
)

// Loop drives a Core with a log, a state machine, a clock and the network. Its
// methods may be called from any goroutine. Beside its own goroutine it has
// MaxSnapshotsOut that send snapshots.
type Loop struct {
	opts   Options
	driver *Driver
	core   *Core // the driver's
	inbox  *inbox.Inbox
	last   inbox.Work

	published atomic.Pointer[Stats]
	overrun   atomic.Uint64 // messages
	refused   atomic.Uint64 // frames
	turns     atomic.Uint64 // ticks, from 1
	lag       atomic.Int64  // moving mean of how late ticks are, nanoseconds
	ticked    time.Time     // of the loop's goroutine

	stop     chan struct{}
	stopOnce sync.Once
	done     chan struct{}
	err      error // why the loop ended, valid after done

	sending  sending
	incoming chan struct{} // has room for MaxSnapshotsIn
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
		inbox:  inbox.New(),
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
// The data becomes raft's: the caller never touches it again. With an error it
// had no effect; otherwise it is applied, reported as dropped, or of unknown
// outcome once the leadership ends.
func (l *Loop) Propose(shard sharding.ShardID, fence sharding.Term, proposal uint64, data []byte) error {
	if len(data) > l.opts.MaxEntryBytes {
		return ErrTooLarge
	}
	if l.opts.Machine.Backlog() > l.opts.MaxBacklogBytes {
		return ErrBusy
	}
	return l.inbox.Propose(inbox.Proposal{Shard: shard, Fence: fence, Number: proposal, Data: data}, l.opts.MaxQueueCount, l.opts.MaxQueueBytes)
}

// ReadIndex asks whether this replica leads the shard now; the answer goes to
// the sink under the token. It does not block.
func (l *Loop) ReadIndex(shard sharding.ShardID, token uint64) error {
	return l.inbox.Put(func(w *inbox.Work) error {
		if len(w.Reads) >= l.opts.MaxQueueCount {
			return ErrBusy
		}
		w.Reads = append(w.Reads, inbox.Read{Shard: shard, Token: token})
		return nil
	})
}

// Receive takes a frame that came from a node. The frame becomes the loop's.
// What does not fit is dropped, which the peer survives; an error says that the
// frame is not one. The node is remembered as the one of the replicas that the
// frame's messages are from. Whether it is heard, PeerHeard says.
func (l *Loop) Receive(from sharding.NodeID, frame []byte) error {
	overloaded := l.opts.Machine.Backlog() > 2*l.opts.MaxBacklogBytes
	var messages []inbox.Message
	err := wire.DecodeFrame(frame, func(m wire.Message) {
		// A follower that cannot keep up loses appends; the leader then sends
		// no more than it has room for.
		if !overloaded || m.Raft.GetType() != pb.MsgApp || len(m.Raft.GetEntries()) == 0 {
			messages = append(messages, inbox.Message{From: from, Message: m})
		}
	})
	if err != nil {
		l.refused.Add(1)
		return err
	}
	err = l.inbox.Put(func(w *inbox.Work) error {
		if len(w.Messages)+len(messages) > l.opts.MaxQueueCount || w.Frames+int64(len(frame)) > l.opts.MaxQueueBytes && w.Frames > 0 {
			return ErrBusy
		}
		w.Frames += int64(len(frame))
		w.Messages = append(w.Messages, messages...)
		return nil
	})
	if errors.Is(err, ErrBusy) {
		l.overrun.Add(uint64(len(messages)))
		return nil
	}
	return err
}

// Turns counts the loop's ticks, from 1. It stands still while the loop does,
// as on a disk that does not answer. It does not block.
func (l *Loop) Turns() uint64 { return l.turns.Load() }

// lagTicks is how many ticks the mean of their lateness is of, mostly.
const lagTicks = 16

// Lag is a moving mean of how late the loop's ticks are. It does not block.
func (l *Loop) Lag() time.Duration { return time.Duration(l.lag.Load()) }

// late notes when a tick was taken up.
func (l *Loop) late(now time.Time) {
	if !l.ticked.IsZero() {
		lag := l.lag.Load()
		l.lag.Store(lag + (int64(max(now.Sub(l.ticked)-l.opts.Tick, 0))-lag)/lagTicks)
	}
	l.ticked = now
}

// PeerHeard says that a node is heard. To say it again is cheap.
func (l *Loop) PeerHeard(node sharding.NodeID) { l.peer(inbox.Peer{Node: node, Heard: true}) }

// PeerSilent says that no byte came from a node for about SilenceTicks, that
// its loop stands still, or that another incarnation of it was seen: the process
// that was there is gone.
// The groups that it led look for another leader, and those led here that hear
// no quorum without it have none. The loop does not find silence by itself.
func (l *Loop) PeerSilent(node sharding.NodeID) { l.peer(inbox.Peer{Node: node}) }

// PeerGone says that the process of a node seems to have ended, see
// Core.PeerGone. It is a hint: where it is wrong, PeerHeard follows.
func (l *Loop) PeerGone(node sharding.NodeID) { l.peer(inbox.Peer{Node: node, Gone: true}) }

// peer queues an event; a loop that has stopped needs none.
func (l *Loop) peer(e inbox.Peer) {
	_ = l.inbox.Put(func(w *inbox.Work) error { w.AddPeer(e); return nil })
}

// maxCalls bounds the calls that wait for the loop.
const maxCalls = 1024

// call runs fn on the loop's goroutine and waits for it.
func (l *Loop) call(fn func() error) error {
	result := make(chan error, 1)
	err := l.inbox.Put(func(w *inbox.Work) error {
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

// CreateGroups creates replicas that never held data and returns when that is
// durable. All of them are created or none.
func (l *Loop) CreateGroups(configs []GroupConfig) error {
	if len(configs) == 0 {
		return nil
	}
	return l.call(func() error {
		err, logged := l.driver.Create(configs)
		if logged {
			l.err = err // the loop ends
		}
		return err
	})
}

// TransferLeader asks for the leadership of a shard to go to another replica.
// It returns before that happened; it may not happen, and does not while that
// replica's node is silent.
func (l *Loop) TransferLeader(shard sharding.ShardID, to sharding.ReplicaID) error {
	return l.call(func() error { return l.core.TransferLeader(shard, to) })
}

// ChangeMembers proposes a change of membership, fenced like a proposal. That
// it happened shows in Status.
func (l *Loop) ChangeMembers(shard sharding.ShardID, fence sharding.Term, change Change) error {
	return l.call(func() error { return l.core.ChangeMembers(shard, fence, change) })
}

// Status describes a shard's replica.
func (l *Loop) Status(shard sharding.ShardID) (s Status, err error) {
	err = l.call(func() (err error) { s, err = l.core.Status(shard); return err })
	return s, err
}

// Statuses describes all replicas, by shard.
func (l *Loop) Statuses() (s []Status, err error) {
	err = l.call(func() error { s = l.core.Statuses(); return nil })
	return s, err
}

// Err is why the loop ended, once it has: nil after Close.
func (l *Loop) Err() error {
	select {
	case <-l.done:
		return l.err
	default:
		return nil
	}
}

// Close ends the loop after the turn it is in and waits for that, or for ctx.
// What was proposed and not applied has an unknown outcome. The log is left
// synced and open.
func (l *Loop) Close(ctx context.Context) error {
	l.stopOnce.Do(func() { close(l.stop) })
	select {
	case <-l.sending.done:
		return l.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// run is the loop's goroutine.
func (l *Loop) run() {
	defer close(l.done)
	defer l.stopSnapshots()
	ticker := l.opts.NewTicker(l.opts.Tick)
	defer ticker.Stop()
	err := l.cycle(ticker)
	if err == nil {
		err = l.driver.FinalRecord()
	}
	l.refuse(l.inbox.Close())
	if err != nil {
		l.err = fmt.Errorf("raft groups stopped: %w", err)
		l.opts.Fatal(l.err)
	}
}

// cycle takes one bounded drain of the inbox and one turn at a time, and looks
// at the clock and at stop between any two.
func (l *Loop) cycle(ticker Ticker) error {
	others := inbox.Yield{Now: l.opts.Now}
	for {
		if l.core.Busy() {
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
		others.ToOthers()
		l.drain()
		if l.err != nil {
			return l.err
		}
		if l.core.Busy() {
			if err := l.driver.Turn(); err != nil {
				return err
			}
		}
	}
}

func (l *Loop) tick() error {
	l.late(l.opts.Now())
	err := l.driver.Tick()
	l.publish()
	l.turns.Add(1)
	return err
}

// drain gives everything that waited to the core.
func (l *Loop) drain() {
	l.last = l.inbox.Take(l.last)
	w := &l.last
	for _, e := range w.Peers {
		switch {
		case e.Heard:
			l.core.PeerHeard(e.Node)
		case e.Gone:
			l.core.PeerGone(e.Node)
		default:
			l.core.PeerSilent(e.Node)
		}
	}
	for _, s := range w.Stopped {
		l.core.ReplicaStopped(Stopped(s))
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

// refuse answers what will not be done any more. What raft has stays unknown.
func (l *Loop) refuse(w inbox.Work) {
	dropped, reads := l.core.Abandon()
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
