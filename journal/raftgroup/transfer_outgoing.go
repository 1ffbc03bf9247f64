package raftgroup

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"

	"github.com/hostd/hostd/journal/raftgroup/snapdir"
	"github.com/hostd/hostd/journal/raftgroup/wire"
	"github.com/hostd/hostd/journal/statefile"
	"github.com/hostd/hostd/sharding"
)

// errWait: the other node does not know yet how many bytes it has.
var errWait = errors.New("raftgroup: the receiver cannot report its progress yet")

// errNotWritten: the transfer that was supposed to write the shared file did
// not write it.
var errNotWritten = errors.New("raftgroup: the snapshot's file was not written")

// Outgoing is a snapshot that raft wants to send. The sender must call Stream
// or Release, and then ReportSnapshot. Its state is chosen when the transfer
// starts: a queued snapshot pins no state and no log.
type Outgoing struct {
	wire.SnapshotHeader
	// Node is the node of the receiving replica.
	Node sharding.NodeID
	// state is written to the file or, without a file, streamed.
	state statefile.Pinned
	file  *snapdir.SendFile // nil if the snapshot is streamed
	files *snapdir.Dir
	// again means that an earlier attempt to send the file was interrupted. The
	// first offset bytes, which the receiver has, are not sent again.
	again  bool
	offset int64
	damage error // damage found in the file
}

// Question returns the request that asks the other node's ReceiveSnapshot how
// much of the snapshot it already has, or nil if there is nothing to ask.
// Resume receives the answer.
func (o *Outgoing) Question() (head []byte, stream io.Reader) {
	if !o.again || o.file == nil {
		return nil, nil
	}
	return (&wire.TransferHead{IsQuestion: true, Digest: o.file.Digest()}).Encode(), bytes.NewReader(o.SnapshotHeader.Append(nil))
}

// Resume handles the answer to the question. An error in err means that the
// other node has nothing, or is unreachable. If Resume returns errWait, the
// question has to be repeated later.
func (o *Outgoing) Resume(answer []byte, err error) error {
	if err != nil {
		return nil
	}
	a, err := wire.ReadAnswer(answer)
	if err == nil && a.Wait {
		err = errWait
	}
	if err == nil {
		o.offset = a.Offset
	}
	return err
}

// Stream returns the bytes for the other node's ReceiveSnapshot, and the head
// that accompanies them. It is called at most once, after Resume. Closing the
// stream releases its source.
func (o *Outgoing) Stream() (head []byte, stream io.ReadCloser, err error) {
	var s io.ReadCloser
	if o.file == nil {
		s = o.state.Stream()
		o.state = nil
	} else {
		if s, o.offset, err = o.files.OpenSendFile(o.file, o.offset, func(err error) { o.damage = err }); err != nil {
			return nil, nil, err
		}
		head = (&wire.TransferHead{Offset: o.offset, Digest: o.file.Digest()}).Encode()
	}
	return head, &outgoingStream{Reader: io.MultiReader(bytes.NewReader(o.SnapshotHeader.Append(nil)), s), Closer: s}, nil
}

type outgoingStream struct {
	io.Reader
	io.Closer
}

// Release releases the state if it was not streamed.
func (o *Outgoing) Release() {
	if o.state == nil {
		return
	}
	o.state.Close()
	o.state = nil
	if o.file != nil {
		o.file.Abandon(errNotWritten)
	}
}

// newOutgoing returns a snapshot for the node, which is empty if unknown. begin
// chooses its state.
func newOutgoing(header wire.SnapshotHeader, node sharding.NodeID) *Outgoing {
	return &Outgoing{SnapshotHeader: header, Node: node}
}

// begin sets the source: a state to be streamed, a state to be written to the
// file, or a complete file. again means that an earlier transfer of the file
// was interrupted.
func (o *Outgoing) begin(files *snapdir.Dir, state statefile.Pinned, file *snapdir.SendFile, again bool) {
	o.files, o.state, o.file = files, state, file
	o.again = o.again || again && file != nil && state == nil
	if file != nil {
		file.Acquire()
	}
}

// releaseFile ends the use of the file and returns it, nil if there is none.
func (o *Outgoing) releaseFile() *snapdir.SendFile {
	f := o.file
	if o.file = nil; f != nil {
		f.Release()
	}
	return f
}

// isResumed reports whether the transfer continued an interrupted transfer.
func (o *Outgoing) isResumed() bool { return o.offset > 0 }

// Prepare makes a snapshot ready to be sent. The argument begin chooses the
// state and calls o.begin; the slow part happens here, on the sending
// goroutine. If there is no space for a file the state is streamed directly,
// and the transfer cannot be resumed after an interruption.
func (o *Outgoing) Prepare(ctx context.Context, log *slog.Logger, begin func(direct bool) error) error {
	if err := begin(false); err != nil {
		return err
	}
	if state := o.state; state != nil {
		o.state = nil
		o.files.Fill(ctx, o.file, state)
	}
	err := o.file.Wait(ctx)
	if !errors.Is(err, snapdir.ErrNoFile) {
		return err
	}
	log.Info("streaming a snapshot without a file; an interruption restarts it", "shard_id", uint64(o.Shard), "error", err)
	return begin(true)
}
