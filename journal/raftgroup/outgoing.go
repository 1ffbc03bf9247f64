package raftgroup

import (
	"context"
)

// reportSnapshot reports the outcome of a snapshot: nil if the other node has
// stored it durably. After a failure raft retries with increasing delays.
func (c *Core) reportSnapshot(o *Outgoing, err error) {
	g := c.groups[o.Shard]
	status, there := c.transfers.finishSend(g, o, err)
	if !there {
		return
	}
	defer c.recoverPanic(g)
	c.clocks.wake(g)
	g.node().ReportSnapshot(uint64(o.To), status)
	c.markDirty(g)
}

// TakeSnapshots returns the snapshots requested by turns since the last call,
// for a driver without a sender. The caller passes Stream to the other
// driver's ReceiveSnapshot, and the result to ReportSnapshot.
func (d *Driver) TakeSnapshots() []*Outgoing {
	wanted := d.outgoing
	d.outgoing = nil
	var out []*Outgoing
	for _, o := range wanted {
		err := o.Prepare(context.Background(), d.opts.Logger, func(direct bool) error { return d.core.transfers.begin(d.core.groups[o.Shard], o, direct) })
		if err != nil {
			d.core.reportSnapshot(o, err)
			continue
		}
		out = append(out, o)
	}
	d.sweep()
	return out
}

// dispatch queues a turn's snapshots for sending.
func (d *Driver) dispatch(snapshots []*Outgoing) {
	for _, o := range snapshots {
		if d.sender == nil {
			d.outgoing = append(d.outgoing, o)
		} else if err := d.sender.ship(o); err != nil {
			d.core.reportSnapshot(o, err)
		}
	}
}

// ReportSnapshot reports the outcome of a snapshot from TakeSnapshots.
func (d *Driver) ReportSnapshot(o *Outgoing, err error) { d.core.reportSnapshot(o, err) }
