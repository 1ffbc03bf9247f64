package entityapi

import (
	"cmp"
	"context"
	"errors"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

const (
	// defaultPendingPage is the page size if the caller sets none.
	defaultPendingPage = 100
	// scannedPending limits the items of a shard that one page examines.
	scannedPending = 20_000
	// scannedShards limits the shards that one page of sends examines.
	scannedShards = 64
	// shownMessageBytes is the maximum number of bytes of a send's payload that are
	// returned.
	shownMessageBytes = 4 << 10
)

// timerPlace is the position of a timer in the order of all timers of the cluster: by
// time, and by key for equal times.
type timerPlace struct {
	Due int64  // due time, Unix nanoseconds
	Key string // not empty
}

// Before reports whether p comes before q.
func (p timerPlace) Before(q timerPlace) bool { return p.compare(q) < 0 }

func (p timerPlace) compare(q timerPlace) int {
	return cmp.Or(cmp.Compare(p.Due, q.Due), cmp.Compare(p.Key, q.Key))
}

// timerQuery selects timers of a shard.
type timerQuery struct {
	After *timerPlace // only timers after this place; nil selects all
	By    int64       // only timers due at or before this time
	Type  string      // only timers of entities of this type; empty selects all
	Limit int         // the maximum number of timers, at least 1
	Scan  int         // the maximum number of timers to examine, at least Limit
}

// timerPage is a part of a shard's timers, in order.
type timerPage struct {
	Timers []journal.Timer
	// More means that there may be more timers after Last.
	More bool
	Last timerPlace
}

// pending reads the timers and unacknowledged messages of the shards that this node leads.
type pending interface {
	// Timers returns a page of a shard's timers.
	Timers(ctx context.Context, shard sharding.ShardID, q timerQuery) (timerPage, error)
	// Place returns the place of any timer in the cluster's order, even if a
	// different node leads its shard.
	Place(t *journal.Timer) timerPlace
	// Sends calls fn for the unacknowledged messages of a shard after the
	// message with the id after, in the order in which they were sent. The
	// message is valid only during fn. An error of fn stops Sends and is
	// returned unchanged.
	Sends(ctx context.Context, shard sharding.ShardID, after journal.ItemID, fn func(*journal.Message) error) error
}

// memberLister lists the nodes of the cluster.
type memberLister interface {
	Members(ctx context.Context) ([]sharding.NodeID, error)
}

// errMessagesNotListed: the leader's release does not support the call.
var errMessagesNotListed = connect.NewError(connect.CodeUnimplemented, errors.New("the release of a node that leads a shard does not list messages"))
