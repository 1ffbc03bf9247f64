package raftgroup

import (
	"io"

	"github.com/hostd/hostd/journal/raftgroup/snapdir"
	"github.com/hostd/hostd/journal/raftgroup/wire"
	"github.com/hostd/hostd/journal/statefile"
)

// incomingSnapshot is a snapshot being received by a group, one at a time:
//
//	expected ─▶ in its file ─▶ stepped ─▶ in raft's ready ─▶ recorded ─▶ installed
//	                                  └─▶ ignored
type incomingSnapshot struct {
	wire.SnapshotHeader
	Stepped bool // the snapshot was stepped into raft

	part   *snapdir.Part // set until the file is complete
	skip   int64         // bytes of the stream that the part already has
	digest statefile.Digest
	done   func(error)
}

// Resume sets the received part, and the offset at which the stream starts.
func (in *incomingSnapshot) Resume(part *snapdir.Part, from int64) {
	in.part, in.skip = part, part.Offset()-from
}

// Answer encodes the number of received bytes of the snapshot. A nil Incoming
// means that nothing was received.
func (in *incomingSnapshot) Answer(files *snapdir.Dir) ([]byte, error) {
	var a wire.TransferAnswer
	if in != nil {
		var err error
		if a.Wait, err = files.Check(in.part); err != nil {
			return nil, err
		}
		a.Offset = in.part.Offset()
	}
	return a.Encode(), nil
}

// answerLater asks the sender to repeat its question later.
func answerLater() []byte { return (&wire.TransferAnswer{Wait: true}).Encode() }

// Receive writes the stream to the file.
func (in *incomingSnapshot) Receive(files *snapdir.Dir, stream io.Reader) (statefile.Digest, error) {
	return files.Receive(stream, in.SnapshotHeader.File(), in.To, in.part, in.skip)
}

// Complete marks the file as complete, and sets the callback for the outcome.
func (in *incomingSnapshot) Complete(digest statefile.Digest, done func(error)) {
	in.digest, in.done, in.part = digest, done, nil
}

// TakePart detaches the received part of a snapshot whose file is not complete.
func (in *incomingSnapshot) TakePart() *snapdir.Part {
	p := in.part
	in.part = nil
	return p
}

// End reports the outcome.
func (in *incomingSnapshot) End(err error) {
	if in.done != nil {
		in.done(err)
	}
}

// Name returns the name of the file.
func (in *incomingSnapshot) Name() string { return snapdir.Name(in.Shard, in.To, in.digest) }

// Image returns the log's record of the snapshot.
func (in *incomingSnapshot) Image() wire.InstallImage {
	return wire.InstallImage{Index: in.Index, Term: uint64(in.IndexTerm), Digest: in.digest}
}

// Membership returns the membership that the group continues with.
func (in *incomingSnapshot) Membership() wire.Membership {
	return wire.Membership{Index: in.Index, State: in.Members.State}
}
