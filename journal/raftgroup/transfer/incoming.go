package transfer

import (
	"io"

	"github.com/hostd/hostd/journal/raftgroup/snapdir"
	"github.com/hostd/hostd/journal/raftgroup/wire"
	"github.com/hostd/hostd/journal/statefile"
)

// Incoming is a snapshot on its way into a group, one at a time:
//
//	expected ─▶ in its file ─▶ stepped ─▶ in raft's ready ─▶ recorded ─▶ installed
//	                                  └─▶ ignored
type Incoming struct {
	wire.SnapshotHeader
	Stepped bool // raft was given it

	part   *snapdir.Part // until it is in its file
	skip   int64         // bytes of the stream that the part has already
	digest statefile.Digest
	done   func(error)
}

// Resume says what there is of it, and from where on the stream is.
func (in *Incoming) Resume(part *snapdir.Part, from int64) {
	in.part, in.skip = part, part.Offset()-from
}

// Answer says how much there is of it; nil is one of which nothing is here.
func (in *Incoming) Answer(files *snapdir.Dir) ([]byte, error) {
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

// AnswerLater is for who asks while nothing can be said.
func AnswerLater() []byte { return (&wire.TransferAnswer{Wait: true}).Encode() }

// Receive puts the stream into the file.
func (in *Incoming) Receive(files *snapdir.Dir, stream io.Reader) (statefile.Digest, error) {
	return files.Receive(stream, in.SnapshotHeader.File(), in.To, in.part, in.skip)
}

// Received says that it is in its file, and who waits for what becomes of it.
func (in *Incoming) Received(digest statefile.Digest, done func(error)) {
	in.digest, in.done, in.part = digest, done, nil
}

// Part takes out what there is of one that is not in its file.
func (in *Incoming) Part() *snapdir.Part {
	p := in.part
	in.part = nil
	return p
}

// End says what became of it.
func (in *Incoming) End(err error) {
	if in.done != nil {
		in.done(err)
	}
}

// Name is that of its file.
func (in *Incoming) Name() string { return snapdir.Name(in.Shard, in.To, in.digest) }

// Image is what the log says of it.
func (in *Incoming) Image() wire.InstallImage {
	return wire.InstallImage{Index: in.Index, Term: uint64(in.IndexTerm), Digest: in.digest}
}

// First is the membership that the group goes on with.
func (in *Incoming) First() wire.Membership {
	return wire.Membership{Index: in.Index, State: in.Members.State}
}
