package entityapi

import (
	"context"
	"runtime"

	"github.com/hostd/hostd/host/cluster"
	"github.com/hostd/hostd/host/edge/leaderproxy"
	"github.com/hostd/hostd/host/entity"
	"github.com/hostd/hostd/host/entityapi/subscription"
	"github.com/hostd/hostd/host/modules"
	"github.com/hostd/hostd/host/replay"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/host/router"
	"github.com/hostd/hostd/host/slots"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/eventlog"
	"github.com/hostd/hostd/sharding"
)

// commits knows which entries shards have committed.
type commits interface {
	// Confirm returns for each shard an index up to which its log is committed.
	Confirm(ctx context.Context, shards []sharding.ShardID) ([]uint64, error)
}

// Parts are the parts of a node with which it implements the EntityService. All
// are required.
type Parts struct {
	Self       sharding.NodeID
	ClusterID  string
	ShardCount uint32 // number of data shards

	Metadata    *cluster.Metadata
	Leaders     *cluster.Leaders
	Machine     *eventlog.Machine
	ShardRouter *entity.ShardRouter
	Router      *router.Router
	Types       *modules.Types
	Keys        *modules.ShardKeys
	Replays     *replay.Replays
	Upcasts     *replay.Upcasts
	Commits     commits

	scans *slots.Slots // slots of running scans; nil means unlimited
}

// Open sets the parts.
func (p *Parts) Open(from Parts) {
	*p = from
	p.scans = slots.New(max(1, runtime.GOMAXPROCS(0)/2))
}

// Options returns the options that the parts implement. The parts may be opened
// later, before the first call that needs them.
func (p *Parts) Options() Options {
	return Options{
		Runtime: requests{p}, Entities: entities{p}, Histories: histories{p}, Readers: subscription.Readers{EventOrder: eventOrder{p}, Upcasts: upcasts{p}},
		States: states{p}, Records: histories{p}, Pending: pendingView{p}, DeadLetters: localDeadLetters{p}, Load: load{p},
	}
}

// scan waits for a scan slot, which is required to read through the data of a
// shard, and returns the function that releases it.
//
// A call may read 20,000 rows of each of 4,096 shards. Without a limit, many
// such calls would share the processors with the executors, and every executor
// would wait for all of them. So the number of concurrent scans is at most half
// the number of processors: if every processor ran one, each of the goroutines
// through which a command passes would wait for a time slice of a scan. Work
// that waits for a different node or for a client holds no slot. Callers take
// turns.
func (p *Parts) scan(ctx context.Context) (leave func(), err error) {
	if p.scans == nil {
		return func() {}, nil
	}
	return p.scans.Enter(ctx, whoCalls(ctx))
}

// whoCalls identifies the caller of a call for the fair sharing of slots. All
// callers without a credential count as one.
func whoCalls(ctx context.Context) string {
	if who := leaderproxy.Caller(ctx); who != nil {
		return string(who.Bytes())
	}
	return ""
}

// requests implements Runtime.
type requests struct{ *Parts }

func (r requests) Submit(reqs []*request.Request) { r.Router.Submit(reqs) }

// upcasts implements subscription.Upcasts.
type upcasts struct{ *Parts }

func (u upcasts) Check(ctx context.Context, entityType string) error {
	return u.Upcasts.Check(ctx, entityType)
}

func (u upcasts) Upcast(ctx context.Context, id sharding.EntityID, at journal.Sequence, recordedAt int64, e *journal.Event) (string, []byte, error) {
	return u.Upcasts.Upcast(ctx, id, at, recordedAt, e)
}
