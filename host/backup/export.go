package backup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"time"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/archive"
	"github.com/hostd/hostd/sharding"
)

// node is the part of one node, this one or another. Errors that wrap a
// NotLeaderError, ErrUnknownOutcome or ErrUnreachable are worth another attempt
// where the shard is led then.
type node interface {
	FreezeLanes(ctx context.Context, export string, d time.Duration) error
	Cut(ctx context.Context, export string, shards []sharding.ShardID) ([]archive.Shard, error)
	Confirm(ctx context.Context, shards []sharding.ShardID) ([]uint64, error)
	Release(ctx context.Context, export string, cuts bool) error
	ReadCut(ctx context.Context, export string, shard sharding.ShardID, fn func(parts []byte) error) error
	State(ctx context.Context, shards []sharding.ShardID) ([]State, error)
	Chunk(ctx context.Context, shard sharding.ShardID, body []byte) error
}

// ErrUnreachable: the node cannot be reached.
var ErrUnreachable = errors.New("the node cannot be reached")

// ErrUnsettled: no moment was found at which every shard stood still: leaders
// change, or nodes come and go. Nothing was done; retry.
var ErrUnsettled = errors.New("the shards' leaders do not stand still; retry")

// allParts does what was asked of this node with the parts of all. It is safe
// for concurrent use.
type allParts struct {
	count uint32 // of data shards
	// leader names the node that leads a shard.
	leader func(shard sharding.ShardID) (node sharding.NodeID, known bool)
	// node returns the part of a node.
	node   func(name sharding.NodeID) (node, error)
	logger *slog.Logger
}

const (
	// cutAttempts bounds the attempts at a moment.
	cutAttempts = 12
	// freezeTime is how long lanes are frozen in one attempt, at most.
	freezeTime = 5 * time.Second
	// attemptPause is between attempts: commands that waited go on.
	attemptPause = 250 * time.Millisecond
	// releaseTime bounds giving back what an export took.
	releaseTime = 5 * time.Second
	// retryFor is how long something at a shard's leader is tried again.
	retryFor = time.Minute
	// retryPause is between such attempts.
	retryPause = 50 * time.Millisecond
)

func (c *allParts) shards() []sharding.ShardID {
	out := make([]sharding.ShardID, c.count)
	for i := range out {
		out[i] = sharding.ShardID(i + 1)
	}
	return out
}

// byLeader groups all shards by the nodes that lead them.
func (c *allParts) byLeader() (map[sharding.NodeID][]sharding.ShardID, error) {
	out := map[sharding.NodeID][]sharding.ShardID{}
	for _, shard := range c.shards() {
		node, known := c.leader(shard)
		if !known {
			return nil, &sharding.NotLeaderError{Shard: shard}
		}
		out[node] = append(out[node], shard)
	}
	return out, nil
}

// moment is the cuts of all shards, as of one moment.
type moment struct {
	export string
	nodes  map[sharding.NodeID]node
	at     map[sharding.ShardID]sharding.NodeID
	cuts   map[sharding.ShardID]archive.Shard
}

// export writes an archive of the cluster to w. describe is called when the
// cuts are taken: the metadata then has every module that the entities in them
// know. It gives the archive its first block, and names its modules. They are
// read one at a time, because all of them together may have gigabytes.
func (c *allParts) export(ctx context.Context, id archive.ID, w io.Writer,
	describe func(ctx context.Context) (cluster []byte, modules []journal.Digest, err error),
	read func(ctx context.Context, digest journal.Digest, w io.Writer) error) (archive.Summary, error) {
	m, err := c.takeCuts(ctx, fmt.Sprintf("%x", id))
	if err != nil {
		return archive.Summary{}, err
	}
	defer m.release(true)
	text, modules, err := describe(ctx)
	if err != nil {
		return archive.Summary{}, err
	}
	out, err := archive.NewWriter(w, id, text)
	if err != nil {
		return archive.Summary{}, err
	}
	var wasm bytes.Buffer
	for _, digest := range modules {
		wasm.Reset()
		if err := read(ctx, digest, &wasm); err != nil {
			return archive.Summary{}, fmt.Errorf("export module %s, which may have been removed meanwhile: retry: %w", digest, err)
		}
		if err := out.Module(digest, wasm.Bytes()); err != nil {
			return archive.Summary{}, err
		}
	}
	for _, shard := range c.shards() {
		if err := m.write(ctx, shard, out); err != nil {
			return archive.Summary{}, fmt.Errorf("export shard %d: %w", shard, err)
		}
	}
	return out.Close()
}

// takeCuts takes the cuts of all shards so that no entry entered any log between
// the first cut and the last: lanes are frozen meanwhile, and what the logs
// say afterwards is the proof. So the cuts are what the whole cluster held at
// the moment when the last of them was confirmed.
func (c *allParts) takeCuts(ctx context.Context, export string) (m *moment, err error) {
	for range cutAttempts {
		if m, err = c.attempt(ctx, export); err == nil {
			m.release(false)
			return m, nil
		}
		if m != nil {
			m.release(true)
		}
		if !again(err) && (ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded)) {
			return nil, err
		}
		c.logger.Debug("shards did not stand still for an export", "error", err)
		select {
		case <-time.After(attemptPause):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return nil, fmt.Errorf("%w: %w", ErrUnsettled, err)
}

func again(err error) bool {
	var notLeader *sharding.NotLeaderError
	return errors.As(err, &notLeader) || errors.Is(err, ErrUnsettled) || errors.Is(err, ErrUnreachable) || errors.Is(err, ErrUnknownOutcome)
}

func (c *allParts) attempt(ctx context.Context, export string) (*moment, error) {
	leaders, err := c.byLeader()
	if err != nil {
		return nil, err
	}
	m := &moment{export: export, nodes: map[sharding.NodeID]node{}, at: map[sharding.ShardID]sharding.NodeID{}, cuts: map[sharding.ShardID]archive.Shard{}}
	var names []sharding.NodeID
	for node, shards := range leaders {
		n, err := c.node(node)
		if err != nil {
			return m, fmt.Errorf("%w: %w", ErrUnreachable, err)
		}
		m.nodes[node] = n
		names = append(names, node)
		for _, shard := range shards {
			m.at[shard] = node
		}
	}
	slices.Sort(names)
	ctx, cancel := context.WithTimeout(ctx, freezeTime)
	defer cancel()
	if err := atAll(names, func(_ int, node sharding.NodeID) error { return m.nodes[node].FreezeLanes(ctx, export, freezeTime) }); err != nil {
		return m, err
	}
	cuts := make([][]archive.Shard, len(names))
	err = atAll(names, func(i int, node sharding.NodeID) (err error) {
		cuts[i], err = m.nodes[node].Cut(ctx, export, leaders[node])
		return err
	})
	if err != nil {
		return m, err
	}
	for _, some := range cuts {
		for _, cut := range some {
			m.cuts[cut.ID] = cut
		}
	}
	return m, atAll(names, func(_ int, node sharding.NodeID) error { return m.confirm(ctx, node, leaders[node]) })
}

// confirm checks that nothing entered the logs of a node's shards after their
// cuts.
func (m *moment) confirm(ctx context.Context, node sharding.NodeID, shards []sharding.ShardID) error {
	indexes, err := m.nodes[node].Confirm(ctx, shards)
	if err != nil {
		return err
	}
	for i, shard := range shards {
		if cut := m.cuts[shard]; i >= len(indexes) || cut.ID != shard || indexes[i] != cut.Index {
			return fmt.Errorf("%w: shard %d went on", ErrUnsettled, shard)
		}
	}
	return nil
}

// atAll calls do for all nodes at once.
func atAll(nodes []sharding.NodeID, do func(i int, node sharding.NodeID) error) error {
	ids := make([]sharding.ShardID, len(nodes))
	return each(ids, func(i int, _ sharding.ShardID) error { return do(i, nodes[i]) })
}

// release thaws the lanes, whatever became of the caller, and the cuts where
// that is asked for. What a node does not hear ends by itself.
func (m *moment) release(cuts bool) {
	ctx, cancel := context.WithTimeout(context.Background(), releaseTime)
	defer cancel()
	var names []sharding.NodeID
	for node := range m.nodes {
		names = append(names, node)
	}
	_ = atAll(names, func(_ int, node sharding.NodeID) error { return m.nodes[node].Release(ctx, m.export, cuts) })
}

// write writes a shard to the archive.
func (m *moment) write(ctx context.Context, shard sharding.ShardID, out *archive.Writer) error {
	if err := out.Begin(m.cuts[shard]); err != nil {
		return err
	}
	err := m.nodes[m.at[shard]].ReadCut(ctx, m.export, shard, func(parts []byte) error {
		for len(parts) > 0 {
			kind, data, rest, err := journal.NextPart(parts)
			if err != nil {
				return err
			}
			if err := out.Part(kind, data); err != nil {
				return err
			}
			parts = rest
		}
		return nil
	})
	if err != nil {
		return err
	}
	return out.End()
}
