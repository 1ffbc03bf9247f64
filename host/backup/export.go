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

// node is the Part of this node or of another node. If an error wraps a
// NotLeaderError, errUnknownOutcome or errUnreachable, the caller may retry
// at the current leader of the shard.
type node interface {
	FreezeExecutors(ctx context.Context, export string, d time.Duration) error
	Cut(ctx context.Context, export string, shards []sharding.ShardID) ([]archive.Shard, error)
	Confirm(ctx context.Context, shards []sharding.ShardID) ([]uint64, error)
	Release(ctx context.Context, export string, cuts bool) error
	ReadCut(ctx context.Context, export string, shard sharding.ShardID, fn func(parts []byte) error) error
	State(ctx context.Context, shards []sharding.ShardID) ([]State, error)
	Chunk(ctx context.Context, shard sharding.ShardID, body []byte) error
}

// errUnreachable means that the node cannot be reached.
var errUnreachable = errors.New("the node is unreachable")

// errUnsettled means that there was no moment at which all shards stood still,
// because leaders changed or nodes came and went. Nothing was done; the caller
// may retry.
var errUnsettled = errors.New("shards changed their leaders during the export; retry")

// allParts coordinates an export or import on the node that a client has
// called. It uses the parts of all nodes. It is safe for concurrent use.
type allParts struct {
	count   uint32 // number of data shards
	leaders leaders
	nodes   nodes
	logger  *slog.Logger
}

// nodes gives access to the parts of nodes.
type nodes interface {
	node(name sharding.NodeID) (node, error)
}

const (
	// cutAttempts is the maximum number of attempts to take all cuts.
	cutAttempts = 12
	// freezeTime is the maximum time that executors are frozen in one attempt.
	// The first attempt gets firstFreeze, and each later attempt gets twice as
	// long as the previous one.
	freezeTime  = 5 * time.Second
	firstFreeze = time.Second
	// settleTime is how long an attempt waits for the stores before it freezes
	// executors.
	settleTime = 5 * time.Second
	// attemptPause is the pause between attempts, in which waiting commands
	// run.
	attemptPause = 250 * time.Millisecond
	// releaseTime bounds the release of the resources of an export.
	releaseTime = 5 * time.Second
	// retryFor is how long an operation at a shard's leader is retried.
	retryFor = time.Minute
	// retryPause is the pause between such retries.
	retryPause = 50 * time.Millisecond
)

func (c *allParts) shards() []sharding.ShardID {
	out := make([]sharding.ShardID, c.count)
	for i := range out {
		out[i] = sharding.ShardID(i + 1)
	}
	return out
}

// byLeader groups all shards by their leaders.
func (c *allParts) byLeader() (map[sharding.NodeID][]sharding.ShardID, error) {
	out := map[sharding.NodeID][]sharding.ShardID{}
	for _, shard := range c.shards() {
		node, _, known := c.leaders.Leader(shard)
		if !known {
			return nil, &sharding.NotLeaderError{Shard: shard}
		}
		out[node] = append(out[node], shard)
	}
	return out, nil
}

// moment holds the cuts of all shards as of one moment.
type moment struct {
	export string
	nodes  map[sharding.NodeID]node
	at     map[sharding.ShardID]sharding.NodeID
	cuts   map[sharding.ShardID]archive.Shard
}

// export writes an archive of the cluster to w. It calls describe after the
// cuts were taken, so that the metadata contains every module that their
// entities need. describe returns the first block of the archive and the
// digests of the modules. read copies one module; export reads them one at a
// time, because all modules together may have gigabytes.
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
			return archive.Summary{}, fmt.Errorf("export module %s, which may have been removed during the export; retry: %w", digest, err)
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

// takeCuts takes cuts of all shards that are consistent with each other,
// although the shards have independent logs.
//
// An attempt first takes cuts that it does not use, while commands continue:
// each cut waits until the store has everything that was committed before, so
// that little is left to write while the executors are frozen. Then the
// attempt freezes the executors of all leaders, so that they propose no
// commands. Each leader confirms its leadership and its commit index by
// ReadIndex, waits until the store has everything up to that index, and takes
// the cut. After all cuts are taken, a second ReadIndex reads the commit
// index of every shard again.
//
// If no commit index differs from the index of its cut, then no shard changed
// between its cut and the second ReadIndex. So the cuts together are the state
// of the whole cluster at the moment after the last cut was taken.
//
// Freezing only makes success likely. It proves nothing, because a leader may
// change or a freeze may expire. That is why the indexes are compared, and why
// takeCuts retries if an index has moved.
func (c *allParts) takeCuts(ctx context.Context, export string) (m *moment, err error) {
	freeze := firstFreeze
	for range cutAttempts {
		if m, err = c.attempt(ctx, export, freeze); err == nil {
			m.release(false)
			return m, nil
		}
		if m != nil {
			m.release(true)
		}
		if !again(err) && (ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded)) {
			return nil, err
		}
		c.logger.Debug("shards changed their leaders during an export", "frozen", freeze, "error", err)
		freeze = min(2*freeze, freezeTime)
		select {
		case <-time.After(attemptPause):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return nil, fmt.Errorf("%w: %w", errUnsettled, err)
}

func again(err error) bool {
	var notLeader *sharding.NotLeaderError
	return errors.As(err, &notLeader) || errors.Is(err, errUnsettled) || errors.Is(err, errUnreachable) || errors.Is(err, errUnknownOutcome)
}

func (c *allParts) attempt(ctx context.Context, export string, freeze time.Duration) (*moment, error) {
	leaders, err := c.byLeader()
	if err != nil {
		return nil, err
	}
	m := &moment{export: export, nodes: map[sharding.NodeID]node{}, at: map[sharding.ShardID]sharding.NodeID{}, cuts: map[sharding.ShardID]archive.Shard{}}
	var names []sharding.NodeID
	for node, shards := range leaders {
		n, err := c.nodes.node(node)
		if err != nil {
			return m, fmt.Errorf("%w: %w", errUnreachable, err)
		}
		m.nodes[node] = n
		names = append(names, node)
		for _, shard := range shards {
			m.at[shard] = node
		}
	}
	slices.Sort(names)
	if err := m.settle(ctx, names, leaders); err != nil {
		return m, err
	}
	ctx, cancel := context.WithTimeout(ctx, freeze)
	defer cancel()
	if err := atAll(names, func(_ int, node sharding.NodeID) error { return m.nodes[node].FreezeExecutors(ctx, export, freeze) }); err != nil {
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

// settle waits until the stores have everything that is committed now, for at
// most settleTime.
func (m *moment) settle(ctx context.Context, names []sharding.NodeID, leaders map[sharding.NodeID][]sharding.ShardID) error {
	within, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	err := atAll(names, func(_ int, node sharding.NodeID) error {
		_, err := m.nodes[node].Cut(within, m.export, leaders[node])
		return err
	})
	if within.Err() != nil && ctx.Err() == nil {
		return nil // a store that is slow under load may keep up once executors are frozen
	}
	return err
}

// confirm checks that no entry was committed to the logs of a node's shards
// after their cuts.
func (m *moment) confirm(ctx context.Context, node sharding.NodeID, shards []sharding.ShardID) error {
	indexes, err := m.nodes[node].Confirm(ctx, shards)
	if err != nil {
		return err
	}
	for i, shard := range shards {
		if cut := m.cuts[shard]; i >= len(indexes) || cut.ID != shard || indexes[i] != cut.Index {
			return fmt.Errorf("%w: shard %d changed its leader", errUnsettled, shard)
		}
	}
	return nil
}

// atAll calls do for all nodes concurrently and joins the errors.
func atAll(nodes []sharding.NodeID, do func(i int, node sharding.NodeID) error) error {
	ids := make([]sharding.ShardID, len(nodes))
	return each(ids, func(i int, _ sharding.ShardID) error { return do(i, nodes[i]) })
}

// release unfreezes the executors and, if cuts is set, releases the cuts, even
// if the caller's context has ended. If a node cannot be reached, its freeze
// and its cuts expire.
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
