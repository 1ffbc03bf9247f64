package raftgroup

import (
	"errors"
	"fmt"

	"github.com/hostd/hostd/journal/raftgroup/recovery"
	"github.com/hostd/hostd/journal/raftgroup/snapdir"
	"github.com/hostd/hostd/journal/raftgroup/wire"
	"github.com/hostd/hostd/journal/wal"
	"github.com/hostd/hostd/sharding"
)

// Driver executes the turns of a Core: it appends, syncs, sends, applies and
// reports in the order that makes state durable before it is promised. It
// starts no goroutine, and belongs to the goroutine of a Loop or of a
// simulator. After an error it must not be used, because the log failed.
type Driver struct {
	opts Options
	core *Core

	durable  map[sharding.ShardID]uint64
	framed   []*peerNode // nodes with a pending frame
	ticks    int
	segment  uint64       // segment of the log's end at the last truncation
	lastTail wal.Position // the log's end at the last tick

	files *snapdir.Dir // nil without a directory
	// sender queues snapshots for sending. If it is nil, snapshots collect in
	// outgoing.
	sender   snapshotQueue
	outgoing []*Outgoing
}

// snapshotQueue queues snapshots for sending.
type snapshotQueue interface{ ship(*Outgoing) error }

// NewDriver starts the recovered groups. The machine must be open, as of
// rec.Watermark.
func NewDriver(rec *recovery.Recovered, opts Options) (*Driver, error) {
	if err := opts.Validate(); err != nil {
		return nil, fmt.Errorf("start raft groups: %w", err)
	}
	opts = opts.withDefaults()
	core, err := newCore(rec, opts)
	if err != nil {
		return nil, err
	}
	opts.Log.SetCheckpoint(core.checkpoint)
	d := &Driver{
		opts:    opts,
		core:    core,
		durable: map[sharding.ShardID]uint64{},
		segment: opts.Log.Tail().Segment,
	}
	return d, d.openFiles()
}

// Core returns the core, which accepts the inputs.
func (d *Driver) Core() *Core { return d.core }

// Create durably creates replicas that never held data, either all of them or
// none. logged reports whether the error comes from the log.
func (d *Driver) Create(configs []GroupConfig) (err error, logged bool) {
	payload, err := d.core.createRecord(configs)
	if err != nil {
		return err, false
	}
	if _, err := d.opts.Log.Append(wire.KindCreate, payload); err != nil {
		return err, true
	}
	if _, err := d.opts.Log.Sync(); err != nil {
		return err, true
	}
	return d.core.finishCreate(configs), false
}

// Turn executes one turn of the core.
func (d *Driver) Turn() error {
	t := d.core.beginTurn()
	d.send(t.Early)
	for p := d.core.records.nextInstall(); p != nil; p = d.core.records.nextInstall() {
		if _, err := d.opts.Log.Append(wire.KindInstall, p); err != nil {
			return err
		}
		d.core.records.onInstallAppended()
	}
	for p := d.core.records.nextTurn(); p != nil; p = d.core.records.nextTurn() {
		pos, err := d.opts.Log.Append(wire.KindTurn, p)
		if err != nil {
			return err
		}
		d.core.records.onAppended(pos)
	}
	if t.MustSync {
		if _, err := d.opts.Log.Sync(); err != nil {
			return err
		}
	}
	d.core.finishTurn()
	d.send(t.Late)
	if err := d.installSnapshots(t.Installs); err != nil {
		return err
	}
	d.report(t)
	for _, f := range d.core.stopped.takeFailures() {
		d.opts.OnGroupFailed(f.Shard, f.Err)
	}
	d.dispatch(t.Snapshots)
	d.sweep()
	if d.opts.Log.Tail().Segment != d.segment {
		return d.truncate()
	}
	return nil
}

// report passes the decisions of a finished turn to the machine and the sink.
func (d *Driver) report(t *turn) {
	for _, c := range t.Leaders {
		d.opts.Sink.LeaderChanged(c.Shard, c.Term, c.Leader, c.Self)
	}
	for _, q := range t.Quorums {
		d.opts.Sink.QuorumChanged(q.Shard, q.OK)
	}
	for _, b := range t.Applied {
		d.opts.Machine.Apply(b.Shard, b.Entries)
	}
	for _, p := range t.Dropped {
		d.opts.Sink.ProposalDropped(p.Shard, p.Fence, p.Proposal, d.withLeader(p.Shard, p.Err))
	}
	for _, r := range t.Reads {
		if r.Err != nil {
			d.opts.Sink.ReadFailed(r.Shard, r.Token, d.withLeader(r.Shard, r.Err))
		} else {
			d.opts.Sink.ReadConfirmed(r.Shard, r.Token, r.Index)
		}
	}
}

// withLeader adds the current leader, if it is known, to ErrNotLeader.
// errors.Is still recognizes the result as ErrNotLeader.
func (d *Driver) withLeader(shard sharding.ShardID, err error) error {
	if err != ErrNotLeader {
		return err
	}
	e := &sharding.NotLeaderError{Shard: shard}
	if g := d.core.groups[shard]; g != nil {
		e.Term = sharding.Term(g.term)
		if g.lead != 0 {
			if n := g.routes.Locate(g.lead); n != nil {
				e.Leader = n.ID
			}
		}
	}
	return notLeader{e}
}

// notLeader is ErrNotLeader together with a *sharding.NotLeaderError.
type notLeader struct{ *sharding.NotLeaderError }

func (e notLeader) Unwrap() []error { return []error{e.NotLeaderError, ErrNotLeader} }

// Tick advances the clock, truncates the log every TruncateTicks, and syncs the
// log's durable mark if nothing was appended since the last tick.
func (d *Driver) Tick() error {
	d.core.tickAll()
	d.sweep()
	if d.ticks++; d.ticks >= d.opts.TruncateTicks {
		d.ticks = 0
		if err := d.truncate(); err != nil {
			return err
		}
	}
	tail := d.opts.Log.Tail()
	idle := tail == d.lastTail
	d.lastTail = tail
	if !idle {
		return nil
	}
	return d.opts.Log.SyncMark()
}

// truncate removes the records from the log that the state machine no longer
// needs.
func (d *Driver) truncate() error {
	log := d.opts.Log
	d.segment = log.Tail().Segment
	if !d.core.retention.canTruncate(d.core.dirty) {
		return nil
	}
	clear(d.durable)
	watermark := d.opts.Machine.Durable(d.durable)
	payload := d.core.retention.truncateRecord(d.core.order, watermark, d.durable)
	if payload == nil {
		d.discardInstalled(watermark)
		return nil
	}
	if _, err := log.Append(wire.KindTruncate, payload); err != nil {
		return err
	}
	if _, err := log.Sync(); err != nil {
		return err
	}
	if _, err := log.Release(d.core.retention.compact(d.core.order, log.Tail(), d.core.markDirty)); err != nil {
		// If a segment cannot be freed now, the next start frees it.
		if errors.Is(err, wal.ErrPoisoned) {
			return err
		}
		d.opts.Logger.Warn("cannot release log segments", "error", err)
	}
	d.segment = log.Tail().Segment
	d.discardInstalled(watermark)
	return nil
}

// discardInstalled discards the snapshots that a restart no longer needs, because the
// watermark that covers them is now in the log.
func (d *Driver) discardInstalled(watermark uint64) {
	if watermark == d.core.retention.watermark {
		for _, g := range d.core.order {
			d.core.transfers.discardInstalled(g, d.durable[g.shard])
		}
		d.sweep()
	}
}

// finalRecord writes all state that is not written yet, so that the next
// process continues where this process ended.
func (d *Driver) finalRecord() error {
	if p := d.core.finalRecord(); p != nil {
		if _, err := d.opts.Log.Append(wire.KindTurn, p); err != nil {
			return err
		}
	}
	_, err := d.opts.Log.Sync()
	return err
}

// send collects messages into one stream of frames per node and passes them to
// the transport. Order between two nodes is preserved within a call.
func (d *Driver) send(messages []envelope) {
	if len(messages) == 0 || d.opts.Transport == nil {
		return
	}
	for i := range messages {
		n := messages[i].to
		if n.Frame.Add(&messages[i].Message) {
			d.framed = append(d.framed, n)
		}
		if n.Frame.Len() >= d.opts.MaxFrameBytes {
			d.emit(n.ID, n.Frame.Rotate())
		}
	}
	for _, n := range d.framed {
		if frame := n.Frame.End(); frame != nil {
			d.emit(n.ID, frame)
		}
	}
	d.framed = d.framed[:0]
}

// emit passes a frame to the transport, which owns it afterwards.
func (d *Driver) emit(to sharding.NodeID, frame []byte) {
	d.core.stats.FramesSent++
	d.core.stats.BytesSent += uint64(len(frame))
	d.opts.Transport.Send(to, frame)
}
