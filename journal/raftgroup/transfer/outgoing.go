package transfer

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

// ErrWait: the other node does not know yet how much it has.
var ErrWait = errors.New("raftgroup: the receiver of a snapshot has to be asked again")

// errNotWritten: whoever was to write the file that others wait for did not.
var errNotWritten = errors.New("raftgroup: the snapshot's file was not written")

// Outgoing is a snapshot that raft wants sent. The sender's SnapshotSent must follow, and
// before it Stream or Release. What it is of is decided when it begins to be
// sent: one that waits pins no state and holds no log.
type Outgoing struct {
	wire.SnapshotHeader
	// Node is where the replica lives.
	Node sharding.NodeID
	// state is to be written to the file or, without one, to be sent as it is.
	state statefile.Pinned
	file  *snapdir.Sent
	files *snapdir.Dir
	// again: an attempt to send the file broke off. What the receiver has of it,
	// offset bytes, is not sent again.
	again  bool
	offset int64
	damage error // that the file was found to have
}

// Question returns what asks the other node's ReceiveSnapshot how much it has of
// the snapshot already; nil where there is nothing to ask. Resume takes the
// answer.
func (o *Outgoing) Question() (head []byte, stream io.Reader) {
	if !o.again || o.file == nil {
		return nil, nil
	}
	return (&wire.TransferHead{Asks: true, Digest: o.file.Digest()}).Encode(), bytes.NewReader(o.SnapshotHeader.Append(nil))
}

// Resume takes the answer to the question. An error of the other node means
// that it has nothing, or is not there. ErrWait: it has to be asked again later.
func (o *Outgoing) Resume(answer []byte, err error) error {
	if err != nil {
		return nil
	}
	a, err := wire.ReadAnswer(answer)
	if err == nil && a.Wait {
		err = ErrWait
	}
	if err == nil {
		o.offset = a.Offset
	}
	return err
}

// Stream returns the bytes that the other node's ReceiveSnapshot takes, and the
// head that goes beside them; it is called at most once, after Resume. Closing
// the stream releases what it reads.
func (o *Outgoing) Stream() (head []byte, stream io.ReadCloser, err error) {
	var s io.ReadCloser
	if o.file == nil {
		s = o.state.Stream()
		o.state = nil
	} else {
		if s, o.offset, err = o.files.OpenSent(o.file, o.offset, func(err error) { o.damage = err }); err != nil {
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

// New is a snapshot for the node, empty if nobody knows it. Of what it is Begin
// says.
func New(header wire.SnapshotHeader, node sharding.NodeID) *Outgoing {
	return &Outgoing{SnapshotHeader: header, Node: node}
}

// Begin decides what is sent: a state as it is read, one that is to be written
// to the file, or a file that is there. again says that it was sent before, and
// broke off.
func (o *Outgoing) Begin(files *snapdir.Dir, state statefile.Pinned, file *snapdir.Sent, again bool) {
	o.files, o.state, o.file = files, state, file
	o.again = o.again || again && file != nil && state == nil
	if file != nil {
		file.Use()
	}
}

// Leave ends the use of a file, which is returned, nil if there is none.
func (o *Outgoing) Leave() *snapdir.Sent {
	f := o.file
	if o.file = nil; f != nil {
		f.Leave()
	}
	return f
}

// File is what it is sent from, nil if it is sent as it is read.
func (o *Outgoing) File() *snapdir.Sent { return o.file }

// Damage is what its file was found to have.
func (o *Outgoing) Damage() error { return o.damage }

// Resumed says that it went on where it broke off.
func (o *Outgoing) Resumed() bool { return o.offset > 0 }

// Prepare makes a snapshot ready to be sent. begin decides what is sent and calls
// Begin; what takes time happens here, on the goroutine that sends. Where there is no room
// for a file the state itself is sent, which cannot go on once it broke off.
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
	log.Info("a snapshot is sent as it is read, and begins anew if it breaks off", "shard_id", uint64(o.Shard), "error", err)
	return begin(true)
}
