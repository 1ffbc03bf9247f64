package raftgroup

import (
	"errors"
	"io"

	"github.com/hostd/hostd/journal/raftgroup/snapdir"
	"github.com/hostd/hostd/journal/raftgroup/wire"
	"github.com/hostd/hostd/journal/statefile"
	"github.com/hostd/hostd/sharding"
)

// fileName returns the name of the snapshot file that the group's generation
// began with.
func (g *group) fileName() string {
	return snapdir.Name(g.shard, sharding.ReplicaID(g.replica), g.install.Digest)
}

// openFiles opens the directory and removes every file that no record names:
// either its record was not written before the process ended, or a later record
// replaced it.
func (d *Driver) openFiles() error {
	if d.opts.SnapshotDir == "" {
		return nil
	}
	d.files = snapdir.New(d.opts.SnapshotFS, d.opts.SnapshotDir, d.opts.CatchUpSpace, d.opts.Logger)
	d.core.transfers.files = d.files
	names, err := d.files.Names()
	if err != nil {
		return err
	}
	var named []string
	for _, g := range d.core.order {
		if g.install.Index != 0 {
			named = append(named, g.fileName())
		}
		if p := d.findPart(g, names); p != nil {
			named = append(named, p.Name())
		}
	}
	return d.files.Clear(named)
}

// findPart looks for a snapshot of the group that was partly received before
// the restart.
func (d *Driver) findPart(g *group, names []string) *snapdir.Part {
	for _, name := range names {
		if p := d.files.FindPart(g.shard, sharding.ReplicaID(g.replica), name); p != nil {
			d.core.transfers.attachPart(g, p)
			return p
		}
	}
	return nil
}

// sweep removes the files that no record needs any longer.
func (d *Driver) sweep() {
	if d.files != nil {
		d.files.Sweep()
	}
}

// installSnapshots passes the turn's snapshots to the state machine. Each comes with its
// file open, because a later snapshot may replace and remove the file before
// the machine reads it.
func (d *Driver) installSnapshots(installs []installation) error {
	for i := range installs {
		in := &installs[i]
		name := in.name
		f, err := d.files.Open(name)
		if err != nil {
			return err
		}
		d.opts.Snapshots.Install(in.Shard, in.Generation, statefile.Install{
			Index: in.image.Index, Term: sharding.Term(in.image.Term), Digest: in.image.Digest,
			Stream: f, Open: func() (io.ReadCloser, error) { return d.files.Open(name) },
		})
		in.in.End(nil)
	}
	return nil
}

// ReceiveSnapshot receives a snapshot from a node and steps it: head and stream
// come from the sending driver's Outgoing. done is called once: with nil in a
// later turn when the snapshot's record is durable, or with the error. A
// question is answered at once. ReceiveSnapshot is for callers without a Loop.
func (d *Driver) ReceiveSnapshot(from sharding.NodeID, head []byte, stream io.Reader, done func(answer []byte, err error)) {
	at, h, err := wire.ReadTransfer(head, stream)
	if err != nil {
		done(nil, err)
		return
	}
	in, err := d.core.admitSnapshot(from, h, at)
	if at.IsQuestion {
		answer, err := d.answer(in, err)
		if in != nil {
			d.core.transfers.releaseIncoming(d.core.groups[in.Shard], in)
		}
		done(answer, err)
		return
	}
	if err != nil || in == nil {
		done(nil, err)
		return
	}
	digest, err := in.Receive(d.files, stream)
	if err != nil {
		d.core.transfers.releaseIncoming(d.core.groups[in.Shard], in)
		done(nil, err)
		return
	}
	d.core.stepSnapshot(in, digest, func(err error) { done(nil, err) })
	d.sweep()
}

// answer encodes the number of bytes that this node has of a snapshot. err is
// set if the replica cannot be asked.
func (d *Driver) answer(in *incomingSnapshot, err error) ([]byte, error) {
	switch {
	case errors.Is(err, ErrBusy):
		return answerLater(), nil
	case err != nil:
		return nil, err
	}
	return in.Answer(d.files)
}
