package cluster

import (
	"context"
	"flag"
	"net/http"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	"github.com/hostd/hostd/api/gen/hostd/entity/v1/entityv1connect"
	"github.com/hostd/hostd/tests/support/history"
	"github.com/hostd/hostd/tests/support/testkit"
	"github.com/hostd/hostd/tests/support/workload"
)

var freeze = flag.Duration("freeze", 5*time.Second, "how long a leading node is frozen")

// readers query every node about the entities of a history and record the
// answers, whether or not the node leads and whether or not it is frozen.
type readers struct {
	w       *world
	ctx     context.Context
	stop    context.CancelFunc
	callers sync.WaitGroup
}

// readersPerNode is the number of concurrent queries to a node. A frozen node
// has to answer this number of queries when it continues.
const readersPerNode = 4

const readerRest = 10 * time.Millisecond

func startReaders(w *world) *readers {
	w.t.Helper()
	r := &readers{w: w}
	r.ctx, r.stop = context.WithCancel(context.Background())
	for _, n := range w.Nodes() {
		c := entityv1connect.NewEntityServiceClient(http.DefaultClient, n.API())
		for i := range readersPerNode {
			r.callers.Go(func() { r.run(c, i) })
		}
	}
	w.t.Cleanup(r.end)
	return r
}

// run sends one query at a time. A query is cancelled only when the readers
// end, because the late answers of a node must be checked.
func (r *readers) run(c entityv1connect.EntityServiceClient, turn int) {
	for r.ctx.Err() == nil {
		entities := r.w.h.Entities()
		for range 100 {
			if r.ctx.Err() != nil || len(entities) == 0 {
				break
			}
			turn++
			r.ask(c, entities[turn%len(entities)])
			time.Sleep(readerRest)
		}
		time.Sleep(readerRest)
	}
}

func (r *readers) ask(c entityv1connect.EntityServiceClient, e history.Entity) {
	a := history.Attempt{Entity: e, Query: true, Name: workload.Query(e.Type), Start: r.w.h.Now()}
	res, err := c.QueryEntity(r.ctx, connect.NewRequest(&entityv1.QueryEntityRequest{
		EntityType: e.Type, EntityId: e.ID, Query: a.Name, Payload: &entityv1.QueryEntityRequest_Data{},
	}))
	a.End = r.w.h.Now()
	if err != nil {
		a.Outcome, a.Code = history.Failed, err.Error()
	} else {
		a.Outcome, a.Reply, a.Sequence = history.OK, string(res.Msg.GetData()), res.Msg.GetSequence()
	}
	r.w.h.Add(a)
}

func (r *readers) end() {
	r.stop()
	r.callers.Wait()
}

// TestFrozenLeader stops the process of a leader for longer than the failure
// timeout and then continues it. The node must neither answer from outdated
// state nor accept a command as if it were still the leader. Meanwhile every
// node is queried about every entity.
func TestFrozenLeader(t *testing.T) {
	testkit.Long(t, "long")
	w := begin(t)
	r := startReaders(w)
	w.goesOn(200)
	victim := max(0, w.Leader(uint32(1+w.rng.IntN(shards))))
	w.Pause(victim)
	t.Logf("%s is frozen for %s", w.Node(victim).ID(), *freeze)
	end := time.Now().Add(*freeze)
	for time.Now().Before(end) {
		w.goesOn(100)
	}
	w.Continue(victim)
	w.goesOn(1000)
	w.serves(victim)
	w.done["freeze"]++
	r.end()
	w.end()
}
