package client

import (
	"context"
	"errors"
	"io"

	"connectrpc.com/connect"

	journalv1 "github.com/hostd/hostd/api/gen/hostd/journal/v1"
)

// Export writes a file of the whole cluster to w: everything that was
// acknowledged before some moment of the call. After an error what was written
// is no file. It lasts as long as ctx, and is not tried again.
func (c *Client) Export(ctx context.Context, w io.Writer) error {
	n, _ := c.current()
	in, err := n.journal.Export(ctx, connect.NewRequest(&journalv1.ExportRequest{}))
	if err != nil {
		return typed(err)
	}
	defer in.Close()
	for in.Receive() {
		if _, err := w.Write(in.Msg().GetChunk()); err != nil {
			return err
		}
	}
	if err := in.Err(); err != nil {
		return typed(err)
	}
	return nil
}

// Imported is what a file held.
type Imported struct {
	Entities uint64 // deleted ones too
	Shards   uint64 // that they came from
	Modules  uint64
	Digest   string // SHA-256 of the file up to its last block, in hex
	// InPart are the entity types that a second module serves in part; their
	// rollouts take no step until somebody resumes them.
	InPart []string
	// LeftOut says which roles of the file, and whose, were not brought because
	// they reach the verb security.
	LeftOut []string
}

// importBytes is the size of a message of an import.
const importBytes = 256 << 10

// Import brings a file into a cluster that has never held anything. The file
// has to be verified before (hostd journal verify): what is found to be damaged
// on the way leaves the cluster half-way, serving nothing. When it fails for
// another reason the same file may be imported again. It lasts as long as ctx.
//
// Roles that allow the verb security are left out.
func (c *Client) Import(ctx context.Context, r io.Reader) (Imported, error) {
	return c.importFile(ctx, r, false)
}

// ImportWithBindings is Import with the roles that allow the verb security, and
// who has them: whoever made the file may be among those. Who is admin is left
// out all the same.
func (c *Client) ImportWithBindings(ctx context.Context, r io.Reader) (Imported, error) {
	return c.importFile(ctx, r, true)
}

func (c *Client) importFile(ctx context.Context, r io.Reader, withBindings bool) (Imported, error) {
	n, _ := c.current()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream := n.journal.Import(ctx)
	buf := make([]byte, importBytes)
	for {
		got, err := io.ReadFull(r, buf)
		if got > 0 {
			if err := stream.Send(&journalv1.ImportRequest{Chunk: buf[:got], WithBindings: withBindings}); errors.Is(err, io.EOF) {
				break // the node says why
			} else if err != nil {
				return Imported{}, typed(err)
			}
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			break
		}
		if err != nil {
			return Imported{}, err
		}
	}
	res, err := stream.CloseAndReceive()
	if err != nil {
		return Imported{}, typed(err)
	}
	c.learner.stale.Store(true)
	m := res.Msg
	return Imported{Entities: m.GetEntities(), Shards: m.GetShards(), Modules: m.GetModules(), Digest: m.GetDigest(), InPart: m.GetInPart(), LeftOut: m.GetLeftOut()}, nil
}
