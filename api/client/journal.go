package client

import (
	"context"
	"errors"
	"io"

	"connectrpc.com/connect"

	journalv1 "github.com/hostd/hostd/api/gen/hostd/journal/v1"
)

// Export writes an export of the whole cluster to w. It contains everything
// that was acknowledged before some point in time during the call. If it
// returns an error, the written bytes are not a valid file. It runs as long as
// ctx allows and is not retried.
func (c *Client) Export(ctx context.Context, w io.Writer) error {
	n, _ := c.current()
	in, err := n.journal.ExportJournal(ctx, connect.NewRequest(&journalv1.ExportJournalRequest{}))
	if err != nil {
		return clientError(err)
	}
	defer in.Close()
	for in.Receive() {
		if _, err := w.Write(in.Msg().GetChunk()); err != nil {
			return err
		}
	}
	if err := in.Err(); err != nil {
		return clientError(err)
	}
	return nil
}

// Imported describes the content of an imported file.
type Imported struct {
	Entities uint64 // including deleted ones
	Shards   uint64 // number of shards of the exported cluster
	Modules  uint64
	Digest   string // SHA-256 of the file up to its last block, in hex
	// PausedRollouts lists the entity types that are in the middle of a rollout; their
	// rollouts are paused until an operator resumes them.
	PausedRollouts []string
	// Omitted lists the settings of the file that were not imported because this
	// release rejects them, and the roles and role bindings that were not imported
	// because they allow the verb security.
	Omitted []string
}

// importBytes is the size of one message of an import.
const importBytes = 256 << 10

// Import imports a file into a cluster that has never held any data. Verify the
// file first (hostd journal verify): damage that is found during the import
// leaves the cluster half imported and not serving. After any other failure the
// same file may be imported again. Import runs as long as ctx allows.
//
// Roles that allow the verb security are left out.
func (c *Client) Import(ctx context.Context, r io.Reader) (Imported, error) {
	return c.importFile(ctx, r, false)
}

// ImportWithSecurityRoles is like Import, but includes the roles that allow the
// verb security and their bindings. Use it only if you trust the file, because
// its author may be bound to such a role. Bindings to admin are still left out.
func (c *Client) ImportWithSecurityRoles(ctx context.Context, r io.Reader) (Imported, error) {
	return c.importFile(ctx, r, true)
}

func (c *Client) importFile(ctx context.Context, r io.Reader, withBindings bool) (Imported, error) {
	n, _ := c.current()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream := n.journal.ImportJournal(ctx)
	buf := make([]byte, importBytes)
	for {
		got, err := io.ReadFull(r, buf)
		if got > 0 {
			if err := stream.Send(&journalv1.ImportJournalRequest{Chunk: buf[:got], WithSecurityRoles: withBindings}); errors.Is(err, io.EOF) {
				break // the node reports why
			} else if err != nil {
				return Imported{}, clientError(err)
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
		return Imported{}, clientError(err)
	}
	c.learner.stale.Store(true)
	m := res.Msg
	return Imported{Entities: m.GetEntities(), Shards: m.GetShards(), Modules: m.GetModules(), Digest: m.GetDigest(), PausedRollouts: m.GetPausedRollouts(), Omitted: m.GetOmitted()}, nil
}
