// Package pending lists timers of entities, and messages that are not
// acknowledged yet, which both take effect later without a caller. Timers are
// merged from all nodes that lead shards; messages are read one shard after the
// other, each on the node that leads it. The package never writes, and keeps
// nothing between two calls.
package pending

import (
	"cmp"
	"context"
	"errors"
	"log/slog"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/host/edge/leaderproxy"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

const (
	// defaultPage is the page size if the caller sets none.
	defaultPage = 100
	// scanned limits the items of a shard that one page examines.
	scanned = 20_000
	// scannedShards limits the shards that one page of sends examines.
	scannedShards = 64
	// shownBytes is the maximum number of bytes of a send's payload that are
	// returned.
	shownBytes = 4 << 10
)

// Place is the position of a timer in the order of all timers of the cluster: by
// time, and by key for equal times.
type Place struct {
	Due int64  // due time, Unix nanoseconds
	Key string // not empty
}

// Before reports whether p comes before q.
func (p Place) Before(q Place) bool { return p.compare(q) < 0 }

func (p Place) compare(q Place) int {
	return cmp.Or(cmp.Compare(p.Due, q.Due), cmp.Compare(p.Key, q.Key))
}

// Query selects timers of a shard.
type Query struct {
	After *Place // only timers after this place; nil selects all
	By    int64  // only timers due at or before this time
	Type  string // only timers of entities of this type; empty selects all
	Limit int    // the maximum number of timers, at least 1
	Scan  int    // the maximum number of timers to examine, at least Limit
}

// Page is a part of a shard's timers, in order.
type Page struct {
	Timers []journal.Timer
	// More means that there may be more timers after Last.
	More bool
	Last Place
}

// Source reads timers and sends of the shards that this node leads.
type Source interface {
	// Timers returns a page of a shard's timers.
	Timers(ctx context.Context, shard sharding.ShardID, q Query) (Page, error)
	// Place returns the place of any timer in the cluster's order, even if a
	// different node leads its shard.
	Place(t *journal.Timer) Place
	// Sends calls fn for the unacknowledged messages of a shard after the
	// message with the id after, in the order in which they were sent. The
	// message is valid only during fn. An error of fn stops Sends and is
	// returned unchanged.
	Sends(ctx context.Context, shard sharding.ShardID, after journal.ItemID, fn func(*journal.Message) error) error
}

// Service implements ListTimers and ListMessages. All fields are required except
// Source; without it the calls are unimplemented.
type Service struct {
	Self     string
	Source   Source
	Entities distribution
	Types    encodings
	Nodes    memberLister
	Proxy    *leaderproxy.Proxy
	Log      *slog.Logger
}

// distribution knows how entities are distributed.
type distribution interface {
	// Shards returns the number of data shards, which are numbered from 1.
	Shards() uint32
	ShardOf(id sharding.EntityID) sharding.ShardID
}

// encodings knows the entity types and how their payloads are encoded.
type encodings interface {
	Encoding(ctx context.Context, entityType string) (request.Encoding, error)
}

// memberLister lists the nodes of the cluster.
type memberLister interface {
	Members(ctx context.Context) ([]sharding.NodeID, error)
}

// errOlderNode: the leader's release does not support the call.
var errOlderNode = connect.NewError(connect.CodeUnimplemented, errors.New("the release of a node that leads a shard does not list messages"))
