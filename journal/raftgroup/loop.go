package raftgroup

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/hostd/hostd/journal/wal"
	"github.com/hostd/hostd/sharding"
	pb "go.etcd.io/raft/v3/raftpb"
)

// Loop drives a Core with a log, a state machine, a clock and the network. Its
// methods may be called from any goroutine.
type Loop struct {
	opts  Options
	core  *Core
	inbox *inbox
	last  work

	stop     chan struct{}
	stopOnce sync.Once
	done     chan struct{}
	err      error // why the loop ended, valid after done

	durable map[sharding.ShardID]uint64
	frames  map[sharding.NodeID][]byte
	nodes   []sharding.NodeID // of frames, in the order of use
	ticks   int
	segment uint64 // of the log's end at the last cut
}

// Start starts the recovered groups and the goroutine that drives them. The
// machine must be open, as of rec.Watermark.
func Start(rec *Recovered, opts Options) (*Loop, error) {
	if err := opts.Validate(); err != nil {
		return nil, fmt.Errorf("start raft groups: %w", err)
	}
	opts = opts.withDefaults()
	core, err := NewCore(rec, opts)
	if err != nil {
		return nil, err
	}
	opts.Log.SetCheckpoint(core.Checkpoint)
	l := &Loop{
		opts:    opts,
		core:    core,
		inbox:   newInbox(),
		stop:    make(chan struct{}),
		done:    make(chan struct{}),
		durable: map[sharding.ShardID]uint64{},
		frames:  map[sharding.NodeID][]byte{},
		segment: opts.Log.Tail().Segment,
	}
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
	return l.inbox.propose(proposed{shard, fence, proposal, data}, l.opts.MaxQueueCount, l.opts.MaxQueueBytes)
}

// ReadIndex asks whether this replica leads the shard now; the answer goes to
// the sink under the token. It does not block.
func (l *Loop) ReadIndex(shard sharding.ShardID, token uint64) error {
	return l.inbox.put(func(w *work) error {
		if len(w.reads) >= l.opts.MaxQueueCount {
			return ErrBusy
		}
		w.reads = append(w.reads, asked{shard, token})
		return nil
	})
}

// Receive takes a frame from a peer. The frame becomes the loop's. What does
// not fit is dropped, which the peer survives; an error says that the frame is
// not one.
func (l *Loop) Receive(frame []byte) error {
	overloaded := l.opts.Machine.Backlog() > 2*l.opts.MaxBacklogBytes
	var messages []Message
	err := DecodeFrame(frame, func(m Message) {
		// A follower that cannot keep up loses appends; the leader then sends
		// no more than it has room for.
		if !overloaded || m.Raft.GetType() != pb.MsgApp || len(m.Raft.GetEntries()) == 0 {
			messages = append(messages, m)
		}
	})
	if err != nil {
		return err
	}
	err = l.inbox.put(func(w *work) error {
		if len(w.messages)+len(messages) > l.opts.MaxQueueCount || w.frames+int64(len(frame)) > l.opts.MaxQueueBytes && w.frames > 0 {
			return ErrBusy
		}
		w.frames += int64(len(frame))
		w.messages = append(w.messages, messages...)
		return nil
	})
	if errors.Is(err, ErrBusy) {
		return nil
	}
	return err
}

// call runs fn on the loop's goroutine and waits for it.
func (l *Loop) call(fn func() error) error {
	result := make(chan error, 1)
	err := l.inbox.put(func(w *work) error {
		if len(w.calls) >= maxCalls {
			return ErrBusy
		}
		w.calls = append(w.calls, func() { result <- fn() })
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
		payload, err := l.core.CreateRecord(configs)
		if err != nil {
			return err
		}
		if _, err := l.opts.Log.Append(KindCreate, payload); err != nil {
			return l.failed(err)
		}
		if _, err := l.opts.Log.Sync(); err != nil {
			return l.failed(err)
		}
		return l.core.Created(configs)
	})
}

// TransferLeader asks for the leadership of a shard to go to another replica.
// It returns before that happened; it may not happen.
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
	case <-l.done:
		return l.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// run is the loop's goroutine.
func (l *Loop) run() {
	defer close(l.done)
	ticker := l.opts.NewTicker(l.opts.Tick)
	defer ticker.Stop()
	err := l.cycle(ticker)
	if err == nil {
		err = l.rest()
	}
	l.refuse(l.inbox.close())
	if err != nil {
		l.err = fmt.Errorf("raft groups stopped: %w", err)
		l.opts.Fatal(l.err)
	}
}

// cycle takes one bounded drain of the inbox and one turn at a time, and looks
// at the clock and at stop between any two.
func (l *Loop) cycle(ticker Ticker) error {
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
			case <-l.inbox.wake:
			}
		}
		l.drain()
		if l.err != nil {
			return l.err
		}
		if l.core.Busy() {
			if err := l.turn(); err != nil {
				return err
			}
		}
	}
}

// drain gives everything that waited to the core.
func (l *Loop) drain() {
	l.last = l.inbox.take(l.last)
	w := &l.last
	for i := range w.messages {
		l.core.Step(w.messages[i])
	}
	for i := range w.proposals {
		p := &w.proposals[i]
		if err := l.core.Propose(p.shard, p.fence, p.number, p.data); err != nil {
			l.opts.Sink.ProposalDropped(p.shard, p.fence, p.number, err)
		}
	}
	for _, r := range w.reads {
		if err := l.core.ReadIndex(r.shard, r.token); err != nil {
			l.opts.Sink.ReadFailed(r.shard, r.token, err)
		}
	}
	for _, fn := range w.calls {
		if l.err == nil {
			fn()
		}
	}
}

// failed ends the loop after a call that the log failed.
func (l *Loop) failed(err error) error {
	l.err = err
	return err
}

// turn does what the core wants done, in the order that makes it durable
// before it is promised.
func (l *Loop) turn() error {
	t := l.core.Begin()
	l.send(t.Early)
	for p := l.core.Record(); p != nil; p = l.core.Record() {
		pos, err := l.opts.Log.Append(KindTurn, p)
		if err != nil {
			return err
		}
		l.core.Appended(pos)
	}
	if t.MustSync {
		if _, err := l.opts.Log.Sync(); err != nil {
			return err
		}
	}
	l.core.Finish()
	l.send(t.Late)
	l.report(t)
	if l.opts.Log.Tail().Segment != l.segment {
		return l.cut()
	}
	return nil
}

// report tells the machine and the sink what a finished turn decided.
func (l *Loop) report(t *Turn) {
	for _, c := range t.Leaders {
		l.opts.Sink.LeaderChanged(c.Shard, c.Term, c.Leader, c.Self)
	}
	for _, b := range t.Applied {
		l.opts.Machine.Apply(b.Shard, b.Entries)
	}
	for _, d := range t.Dropped {
		l.opts.Sink.ProposalDropped(d.Shard, d.Fence, d.Proposal, l.named(d.Shard, d.Err))
	}
	for _, r := range t.Reads {
		if r.Err != nil {
			l.opts.Sink.ReadFailed(r.Shard, r.Token, l.named(r.Shard, r.Err))
		} else {
			l.opts.Sink.ReadConfirmed(r.Shard, r.Token, r.Index)
		}
	}
}

// named says who leads the shard instead, as far as that is known. The result
// is still ErrNotLeader to errors.Is.
func (l *Loop) named(shard sharding.ShardID, err error) error {
	if err != ErrNotLeader {
		return err
	}
	leader, term := l.core.Leader(shard)
	e := &sharding.NotLeaderError{Shard: shard, Term: term}
	if leader != 0 && l.opts.Locate != nil {
		e.Leader, _ = l.opts.Locate(shard, leader)
	}
	return notLeader{e}
}

// notLeader is ErrNotLeader with a *sharding.NotLeaderError.
type notLeader struct{ *sharding.NotLeaderError }

func (e notLeader) Unwrap() []error { return []error{e.NotLeaderError, ErrNotLeader} }

// tick moves the clock on and cuts the log now and then.
func (l *Loop) tick() error {
	l.core.Tick()
	if l.ticks++; l.ticks < l.opts.CutTicks {
		return nil
	}
	l.ticks = 0
	if err := l.cut(); err != nil {
		return err
	}
	return l.opts.Log.SyncMark()
}

// cut gives the log back that the state machine no longer needs.
func (l *Loop) cut() error {
	log := l.opts.Log
	l.segment = log.Tail().Segment
	if !l.core.CutDue() {
		return nil
	}
	clear(l.durable)
	payload := l.core.CutRecord(l.opts.Machine.Durable(l.durable), l.durable)
	if payload == nil {
		return nil
	}
	if _, err := log.Append(KindCut, payload); err != nil {
		return err
	}
	if _, err := log.Sync(); err != nil {
		return err
	}
	if _, err := log.Release(l.core.CutDone(log.Tail())); err != nil {
		// What is not given back now is found by the next start.
		if errors.Is(err, wal.ErrPoisoned) {
			return err
		}
		l.opts.Logger.Warn("log segments not given back", "error", err)
	}
	l.segment = log.Tail().Segment
	return nil
}

// rest writes what is known and not written yet, so that the next start begins
// where this one ended.
func (l *Loop) rest() error {
	if p := l.core.RestRecord(); p != nil {
		if _, err := l.opts.Log.Append(KindTurn, p); err != nil {
			return err
		}
	}
	_, err := l.opts.Log.Sync()
	return err
}

// refuse answers what came too late to be done.
func (l *Loop) refuse(w work) {
	for _, p := range w.proposals {
		l.opts.Sink.ProposalDropped(p.shard, p.fence, p.number, ErrStopped)
	}
	for _, r := range w.reads {
		l.opts.Sink.ReadFailed(r.shard, r.token, ErrStopped)
	}
}
