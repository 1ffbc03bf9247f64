package backup

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// errNotEmpty means that the cluster holds entities, or that the import of
// another file has begun. An import needs a cluster that has never held
// anything.
var errNotEmpty = errors.New("the cluster is not empty: an import needs a new cluster that has never had an entity type or an entity")

const (
	// chunksBytes bounds the total size of the chunks of all shards, and
	// chunkMost and chunkLeast bound the size of one chunk.
	chunksBytes = 64 << 20
	chunkMost   = 256 << 10
	chunkLeast  = 16 << 10
	// chunksAtOnce is the maximum number of chunks in flight.
	chunksAtOnce = 32
)

// chunks distributes the parts of an archive to the shards of the cluster.
// After begin, call claim, then part for each part of the archive in order,
// then flush and finish. Always call close at the end. It isn't safe for
// concurrent use.
//
// The same archive and number of shards always produce the same chunks. So a
// repeated import can skip the chunks that an interrupted import has applied.
type chunks struct {
	c      *allParts
	id     journal.ImportID
	locate func(sharding.EntityID) sharding.ShardID
	most   int
	// opened means that shards are open already, because the import completed
	// before. From then on, settings and types belong to the cluster, so they
	// are not imported again.
	opened bool

	ctx    context.Context
	cancel context.CancelCauseFunc
	all    sync.WaitGroup
	slots  chan struct{}
	shards []target       // by shard; element 0 is unused
	flight sync.WaitGroup // chunks that are queued or in flight
}

// target is a shard to import into.
type target struct {
	state State
	parts []byte // parts of the chunk that is being filled
	chunk uint64 // number of that chunk
	queue chan journal.Import
}

// begin checks that each shard is empty or has applied a part of this import.
// begun reports whether any shard has applied a part.
func (c *allParts) begin(ctx context.Context, id journal.ImportID, locate func(sharding.EntityID) sharding.ShardID) (_ *chunks, begun bool, err error) {
	in := &chunks{c: c, id: id, locate: locate, shards: make([]target, c.count+1), slots: make(chan struct{}, chunksAtOnce)}
	in.most = max(min(chunksBytes/int(c.count), chunkMost), chunkLeast)
	states := make([]State, c.count)
	err = each(c.shards(), func(i int, shard sharding.ShardID) error {
		return c.atLeader(ctx, shard, func(ctx context.Context, n node) error {
			got, err := n.State(ctx, []sharding.ShardID{shard})
			if err == nil && (len(got) != 1 || got[0].Shard != shard) {
				err = fmt.Errorf("a node returned data of a shard other than %d", shard)
			}
			if err == nil {
				states[i] = got[0]
			}
			return err
		})
	})
	if err != nil {
		return nil, false, err
	}
	for _, s := range states {
		if s.Begun && s.ID != id || !s.Begun && s.Entities > 0 {
			return nil, false, fmt.Errorf("%w (shard %d)", errNotEmpty, s.Shard)
		}
		in.shards[s.Shard].state = s
		begun = begun || s.Begun
		in.opened = in.opened || s.Complete
	}
	in.ctx, in.cancel = context.WithCancelCause(ctx)
	for i := range in.shards[1:] {
		queue := make(chan journal.Import, 1) // local variable, because end sets the field to nil
		in.shards[i+1].queue = queue
		in.all.Go(func() { in.send(sharding.ShardID(i+1), queue) })
	}
	return in, begun, nil
}

// atLeader calls do with the leader of the shard, and retries while the error
// allows it, for at most retryFor.
func (c *allParts) atLeader(ctx context.Context, shard sharding.ShardID, do func(context.Context, node) error) error {
	until := time.Now().Add(retryFor)
	for {
		var err error
		if name, _, known := c.leaders.Leader(shard); !known {
			err = &sharding.NotLeaderError{Shard: shard}
		} else if n, nerr := c.nodes.node(name); nerr != nil {
			err = fmt.Errorf("%w: %w", errUnreachable, nerr)
		} else {
			attempt, cancel := context.WithTimeout(ctx, freezeTime)
			err = do(attempt, n)
			cancel()
			if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
				err = fmt.Errorf("%w: %w", errUnknownOutcome, err)
			}
		}
		if err == nil || !again(err) || time.Now().After(until) {
			return err
		}
		select {
		case <-time.After(retryPause):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// send sends a shard's chunks to its leader, one at a time.
func (in *chunks) send(shard sharding.ShardID, queue chan journal.Import) {
	for chunk := range queue {
		select {
		case in.slots <- struct{}{}:
		case <-in.ctx.Done():
			in.flight.Done()
			continue
		}
		body := journal.AppendImport(make([]byte, 0, journal.ImportHeaderBytes+len(chunk.Parts)), &chunk)
		err := in.c.atLeader(in.ctx, shard, func(ctx context.Context, n node) error { return n.Chunk(ctx, shard, body) })
		<-in.slots
		in.flight.Done()
		if err != nil {
			in.cancel(fmt.Errorf("import into shard %d: %w", shard, err))
		}
	}
}

// part adds the next part. It does not retain data.
func (in *chunks) part(kind journal.PartKind, data []byte) error {
	e, err := journal.PartEntity(kind, data)
	if err != nil {
		return err
	}
	shard := in.locate(e)
	t := &in.shards[shard]
	if len(t.parts) > 0 && len(t.parts)+len(data)+journal.PartHeaderBytes > in.most {
		if err := in.queue(t, false); err != nil {
			return err
		}
	}
	t.parts = journal.AppendPart(t.parts, kind, data)
	return nil
}

// queue queues a shard's chunk, unless the shard has applied it already.
func (in *chunks) queue(t *target, last bool) error {
	chunk := journal.Import{ID: in.id, Chunk: t.chunk, Last: last, Parts: t.parts}
	t.chunk++
	t.parts = nil
	if chunk.Chunk < t.state.Next {
		return context.Cause(in.ctx)
	}
	in.flight.Add(1)
	select {
	case t.queue <- chunk:
		return nil
	case <-in.ctx.Done():
		in.flight.Done()
		return context.Cause(in.ctx)
	}
}

// claim closes all shards to everything except this import, before any data is
// imported. For that, the first chunk of each shard is empty.
func (in *chunks) claim() error {
	for i := range in.shards[1:] {
		if err := in.queue(&in.shards[i+1], false); err != nil {
			return err
		}
	}
	in.flight.Wait()
	return context.Cause(in.ctx)
}

// flush sends the remaining chunks and returns after all were applied. The
// shards stay closed to everything else until finish.
func (in *chunks) flush() error {
	for i := range in.shards[1:] {
		if t := &in.shards[i+1]; len(t.parts) > 0 {
			if err := in.queue(t, false); err != nil {
				return err
			}
		}
	}
	in.flight.Wait()
	return context.Cause(in.ctx)
}

// finish opens the shards. It must be called after flush.
func (in *chunks) finish() error {
	for i := range in.shards[1:] {
		if err := in.queue(&in.shards[i+1], true); err != nil {
			return err
		}
	}
	in.end()
	return context.Cause(in.ctx)
}

func (in *chunks) end() {
	for i := range in.shards[1:] {
		if t := &in.shards[i+1]; t.queue != nil {
			close(t.queue)
			t.queue = nil
		}
	}
	in.all.Wait()
}

// close ends an import that was not finished, and waits for its goroutines.
func (in *chunks) close() {
	in.cancel(errors.New("the import has ended"))
	in.end()
}
