// Package pending tells what is to happen by itself: the timers of entities,
// and the sends that are on their way. Timers are merged over the nodes that
// lead the shards, sends are read shard after shard where each is led. It never
// writes, and keeps nothing between two calls.
package pending

import (
	"cmp"
	"context"
	"errors"
	"log/slog"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/host/rpc/leaderproxy"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

const (
	// defaultPage is the page of a caller that asks for none.
	defaultPage = 100
	// scanned bounds what one page looks at of a shard.
	scanned = 20_000
	// scannedShards bounds the shards that one page of sends looks at.
	scannedShards = 64
	// shownBytes is how much of a send's payload is told.
	shownBytes = 4 << 10
)

// Place is where a timer stands among all that there are: they are in the order
// of their times, and of their keys where these are the same.
type Place struct {
	Due int64  // unix nanoseconds
	Key string // not empty
}

// Before reports whether p comes before q.
func (p Place) Before(q Place) bool { return p.compare(q) < 0 }

func (p Place) compare(q Place) int {
	return cmp.Or(cmp.Compare(p.Due, q.Due), cmp.Compare(p.Key, q.Key))
}

// Query selects timers of a shard.
type Query struct {
	After *Place // those behind it; nil is all
	By    int64  // those that are due no later
	Type  string // those of entities of the type; empty is all
	Limit int    // at most so many, at least 1
	Scan  int    // at most so many are looked at, at least Limit
}

// Page is some of a shard's timers, in order.
type Page struct {
	Timers []journal.Timer
	// More says that the reading ended at Last, and that there may be others.
	More bool
	Last Place
}

// Source reads what shards have that this node leads.
type Source interface {
	// Timers returns a page of a shard's timers.
	Timers(ctx context.Context, shard sharding.ShardID, q Query) (Page, error)
	// Place returns where a timer stands, of any shard and node.
	Place(t *journal.Timer) Place
	// Sends calls fn for the messages of a shard that are not acknowledged and
	// were made after one, in the order they were made; the message is only lent.
	// An error of fn ends it and is returned as it is.
	Sends(ctx context.Context, shard sharding.ShardID, after journal.ItemID, fn func(*journal.Message) error) error
}

// Service answers ListTimers and ListSends. All members are required, but for
// Source: without it the calls are unimplemented.
type Service struct {
	Self    string
	Source  Source
	Shards  func() uint32 // of data; they are numbered from 1
	ShardOf func(id sharding.EntityID) sharding.ShardID
	// Known fails where there is no such type.
	Known func(ctx context.Context, entityType string) error
	// Members names the nodes of the cluster.
	Members func(ctx context.Context) ([]sharding.NodeID, error)
	Proxy   *leaderproxy.Proxy
	Log     *slog.Logger
}

// errOlderNode: the node that leads the shard cannot be asked for this.
var errOlderNode = connect.NewError(connect.CodeUnimplemented, errors.New("a node that leads a shard is of a release that does not tell sends"))
