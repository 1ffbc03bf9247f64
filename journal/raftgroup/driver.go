package raftgroup

import (
	"errors"
	"fmt"

	"github.com/hostd/hostd/journal/wal"
	"github.com/hostd/hostd/sharding"
)

// Driver takes a Core through its turns: it appends, syncs, sends, applies and
// reports in the order that makes a thing durable before it is promised. It
// has no goroutine and belongs to one; Loop is that goroutine, a simulator may
// be another. After an error it must not be used: the log failed.
type Driver struct {
	opts Options
	core *Core

	durable map[sharding.ShardID]uint64
	peers   []*peer // with a frame under way
	ticks   int
	segment uint64 // of the log's end at the last cut

	files *snapshotFiles // nil without a directory
	// ship takes snapshots to be sent; without it they gather in outgoing.
	ship     func(*Outgoing) error
	outgoing []*Outgoing
}

// NewDriver starts the recovered groups. The machine must be open, as of
// rec.Watermark.
func NewDriver(rec *Recovered, opts Options) (*Driver, error) {
	if err := opts.Validate(); err != nil {
		return nil, fmt.Errorf("start raft groups: %w", err)
	}
	opts = opts.withDefaults()
	core, err := NewCore(rec, opts)
	if err != nil {
		return nil, err
	}
	opts.Log.SetCheckpoint(core.Checkpoint)
	d := &Driver{
		opts:    opts,
		core:    core,
		durable: map[sharding.ShardID]uint64{},
		segment: opts.Log.Tail().Segment,
	}
	return d, d.openFiles(rec)
}

// Core takes the inputs.
func (d *Driver) Core() *Core { return d.core }

// Create creates replicas that never held data; all of them, durably, or none.
// logged says that the error is the log's.
func (d *Driver) Create(configs []GroupConfig) (err error, logged bool) {
	payload, err := d.core.CreateRecord(configs)
	if err != nil {
		return err, false
	}
	if _, err := d.opts.Log.Append(KindCreate, payload); err != nil {
		return err, true
	}
	if _, err := d.opts.Log.Sync(); err != nil {
		return err, true
	}
	return d.core.Created(configs), false
}

// Turn does what the core wants done, in the order that makes it durable
// before it is promised.
func (d *Driver) Turn() error {
	t := d.core.Begin()
	d.send(t.Early)
	for p := d.core.InstallRecord(); p != nil; p = d.core.InstallRecord() {
		if _, err := d.opts.Log.Append(KindInstall, p); err != nil {
			return err
		}
		d.core.InstallAppended()
	}
	for p := d.core.Record(); p != nil; p = d.core.Record() {
		pos, err := d.opts.Log.Append(KindTurn, p)
		if err != nil {
			return err
		}
		d.core.Appended(pos)
	}
	if t.MustSync {
		if _, err := d.opts.Log.Sync(); err != nil {
			return err
		}
	}
	d.core.Finish()
	d.send(t.Late)
	if err := d.hand(t.Installs); err != nil {
		return err
	}
	d.report(t)
	d.dispatch(t.Snapshots)
	d.removeFiles()
	if d.opts.Log.Tail().Segment != d.segment {
		return d.cut()
	}
	return nil
}

// report tells the machine and the sink what a finished turn decided.
func (d *Driver) report(t *Turn) {
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
		d.opts.Sink.ProposalDropped(p.Shard, p.Fence, p.Proposal, d.named(p.Shard, p.Err))
	}
	for _, r := range t.Reads {
		if r.Err != nil {
			d.opts.Sink.ReadFailed(r.Shard, r.Token, d.named(r.Shard, r.Err))
		} else {
			d.opts.Sink.ReadConfirmed(r.Shard, r.Token, r.Index)
		}
	}
}

// named says who leads the shard instead, as far as that is known. The result
// is still ErrNotLeader to errors.Is.
func (d *Driver) named(shard sharding.ShardID, err error) error {
	if err != ErrNotLeader {
		return err
	}
	leader, term := d.core.Leader(shard)
	e := &sharding.NotLeaderError{Shard: shard, Term: term}
	if g := d.core.groups[shard]; g != nil && leader != 0 {
		if p := d.core.locate(g, uint64(leader)); p != nil {
			e.Leader = p.node
		}
	}
	return notLeader{e}
}

// notLeader is ErrNotLeader with a *sharding.NotLeaderError.
type notLeader struct{ *sharding.NotLeaderError }

func (e notLeader) Unwrap() []error { return []error{e.NotLeaderError, ErrNotLeader} }

// Tick moves the clock on and cuts the log now and then.
func (d *Driver) Tick() error {
	d.core.Tick()
	if d.ticks++; d.ticks < d.opts.CutTicks {
		return nil
	}
	d.ticks = 0
	if err := d.cut(); err != nil {
		return err
	}
	return d.opts.Log.SyncMark()
}

// cut gives the log back that the state machine no longer needs.
func (d *Driver) cut() error {
	log := d.opts.Log
	d.segment = log.Tail().Segment
	if !d.core.CutDue() {
		return nil
	}
	clear(d.durable)
	watermark := d.opts.Machine.Durable(d.durable)
	payload := d.core.CutRecord(watermark, d.durable)
	if payload == nil {
		d.spend(watermark)
		return nil
	}
	if _, err := log.Append(KindCut, payload); err != nil {
		return err
	}
	if _, err := log.Sync(); err != nil {
		return err
	}
	if _, err := log.Release(d.core.CutDone(log.Tail())); err != nil {
		// What is not given back now is found by the next start.
		if errors.Is(err, wal.ErrPoisoned) {
			return err
		}
		d.opts.Logger.Warn("log segments not given back", "error", err)
	}
	d.segment = log.Tail().Segment
	d.spend(watermark)
	return nil
}

// spend removes the snapshots that a restart does not need, now that the
// watermark is in the log.
func (d *Driver) spend(watermark uint64) {
	if watermark == d.core.watermark {
		d.core.spend(d.durable)
		d.removeFiles()
	}
}

// Rest writes what is known and not written yet, so that the next start begins
// where this one ended.
func (d *Driver) Rest() error {
	if p := d.core.RestRecord(); p != nil {
		if _, err := d.opts.Log.Append(KindTurn, p); err != nil {
			return err
		}
	}
	_, err := d.opts.Log.Sync()
	return err
}
