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

// ErrNotEmpty: the cluster holds entities, or the import of another file has
// begun: an import needs a cluster that has never held anything.
var ErrNotEmpty = errors.New("the cluster is not empty: an import needs one that has never held an entity type or an entity; begin again with an empty cluster")

const (
	// chunksBytes is what the chunks of all shards may hold together, and
	// chunkMost and chunkLeast bound one.
	chunksBytes = 64 << 20
	chunkMost   = 256 << 10
	chunkLeast  = 16 << 10
	// chunksAtOnce bounds the chunks that are on their way.
	chunksAtOnce = 32
)

// chunks shares the parts of an archive out to the shards of the cluster. begin
// is first, then claim, part for each part of the archive in its order, flush
// and finish; close ends it, whatever happened. It is for one goroutine. Of one
// archive and one number of shards the chunks are always the same, so that an
// import that was interrupted goes on: what has taken effect is passed over.
type chunks struct {
	c      *allParts
	id     journal.ImportID
	locate func(sharding.EntityID) sharding.ShardID
	most   int
	// opened: shards are open already, as the import came to its end before. What
	// the cluster keeps of settings and types since then is its own.
	opened bool

	ctx    context.Context
	cancel context.CancelCauseFunc
	all    sync.WaitGroup
	slots  chan struct{}
	shards []target       // by shard; 0 is not used
	flight sync.WaitGroup // chunks that are queued or on their way
}

// target is a shard that is imported into.
type target struct {
	state State
	parts []byte // of the chunk that is being filled
	chunk uint64 // its number
	queue chan journal.Import
}

// begin looks at all shards: each has nothing, or a part of this very import.
// begun says that some have.
func (c *allParts) begin(ctx context.Context, id journal.ImportID, locate func(sharding.EntityID) sharding.ShardID) (_ *chunks, begun bool, err error) {
	in := &chunks{c: c, id: id, locate: locate, shards: make([]target, c.count+1), slots: make(chan struct{}, chunksAtOnce)}
	in.most = max(min(chunksBytes/int(c.count), chunkMost), chunkLeast)
	states := make([]State, c.count)
	err = each(c.shards(), func(i int, shard sharding.ShardID) error {
		return c.atLeader(ctx, shard, func(ctx context.Context, n node) error {
			got, err := n.State(ctx, []sharding.ShardID{shard})
			if err == nil && (len(got) != 1 || got[0].Shard != shard) {
				err = fmt.Errorf("a node answers for another shard than %d", shard)
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
			return nil, false, fmt.Errorf("%w (shard %d)", ErrNotEmpty, s.Shard)
		}
		in.shards[s.Shard].state = s
		begun = begun || s.Begun
		in.opened = in.opened || s.Complete
	}
	in.ctx, in.cancel = context.WithCancelCause(ctx)
	for i := range in.shards[1:] {
		queue := make(chan journal.Import, 1) // an import that ends at once forgets it
		in.shards[i+1].queue = queue
		in.all.Go(func() { in.send(sharding.ShardID(i+1), queue) })
	}
	return in, begun, nil
}

// atLeader does something at the node that leads the shard, and again while
// that is worth an attempt.
func (c *allParts) atLeader(ctx context.Context, shard sharding.ShardID, do func(context.Context, node) error) error {
	until := time.Now().Add(retryFor)
	for {
		var err error
		if name, known := c.leader(shard); !known {
			err = &sharding.NotLeaderError{Shard: shard}
		} else if n, nerr := c.node(name); nerr != nil {
			err = fmt.Errorf("%w: %w", ErrUnreachable, nerr)
		} else {
			attempt, cancel := context.WithTimeout(ctx, freezeTime)
			err = do(attempt, n)
			cancel()
			if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
				err = fmt.Errorf("%w: %w", ErrUnknownOutcome, err)
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

// send takes a shard's chunks to its leader, one after another.
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

// part takes the next part. The data is not kept.
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

// queue queues a shard's chunk, unless it has taken effect.
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

// claim makes all shards closed to everything but this import, before anything
// of it comes: the first chunk of each is empty.
func (in *chunks) claim() error {
	for i := range in.shards[1:] {
		if err := in.queue(&in.shards[i+1], false); err != nil {
			return err
		}
	}
	in.flight.Wait()
	return context.Cause(in.ctx)
}

// flush says that all parts have come, and returns when they have taken effect.
// The shards stay closed to everything else until finish.
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

// finish opens the shards, after flush.
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

// close ends an import that does not go on, and joins what it started.
func (in *chunks) close() {
	in.cancel(errors.New("the import has ended"))
	in.end()
}
