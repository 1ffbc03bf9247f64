package router

import (
	"errors"
	"flag"
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/sharding"
)

var (
	modelSeed  = flag.Uint64("seed", 0, "run the model with this seed alone")
	modelSeeds = flag.Int("seeds", 400, "how many seeds the model runs")
)

// TestRoutesMatchModel drives the routes of one node in random steps, in a
// cluster whose leaders move, whose links break and whose proposals are
// lost. It compares the answers that callers got with the commands that took
// effect.
func TestRoutesMatchModel(t *testing.T) {
	first, last := uint64(1), uint64(*modelSeeds)
	if *modelSeed != 0 {
		first, last = *modelSeed, *modelSeed
	}
	sums := map[string]int{}
	for seed := first; seed <= last; seed++ {
		w := newModel(seed)
		w.play(1500)
		w.heal()
		if err := w.check(); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		for what, n := range w.seen {
			sums[what] += n
		}
	}
	if *modelSeed == 0 {
		for _, what := range []string{"ok", "duplicate", "unknown", "rejected", "busy", "deadline", "unavailable", "moved", "broken", "dropped", "late"} {
			if sums[what] == 0 {
				t.Errorf("the model never saw %q: %v", what, sums)
			}
		}
	}
}

// asked is a request of a caller.
type asked struct {
	req      request.Request
	stream   int
	index    int
	finished int
	result   request.Result
	executed int  // step of the decision that took effect
	refused  bool // rejected by a node whose answer was lost

	unconfirmed bool // a node rejected it and lost its leadership before it could answer
	unheard     bool // it took effect, but the answer was lost
}

// copyOf is a request at a node.
type copyOf struct {
	*asked
	node int
	link int // number of the link over which it came
}

// op is a decision of an executor that waits for its outcome.
type op struct {
	copyOf
	decided int
	result  request.Result
	write   bool
}

// modelExecutor is a shard on a node.
type modelExecutor struct {
	inbox    []copyOf
	proposed []op
	// refused is the highest round of which a request was sent back. An
	// executor empties its queue before it can lead again, and the receiving
	// end of a link checks the round, so no other request of that round runs
	// here.
	refused uint64
}

// actor submits requests in the order in which it took them.
type actor struct {
	to   target
	reqs []*asked
}

type model struct {
	rng   *rand.Rand
	now   time.Time
	step  int
	seen  map[string]int
	fault error

	routes    []shardRoute
	executors [][]modelExecutor // by node, shard
	leader    []int             // by shard; -1 is none
	links     []int             // number of the link to each node
	wire      [][]copyOf
	late      [][]copyOf                      // given up by the link to each node, and still on their way
	backs     [][]op                          // replies on their way from each node
	lost      [modelNodes][modelShards]uint64 // highest round that a link lost

	actors  []actor // the streams, then the loop
	indexes []int
	all     []*asked
	byReq   map[*request.Request]*asked
}

const (
	modelNodes    = 3
	modelShards   = 2
	modelStreams  = 3
	modelEntities = 2 // entities per shard
)

func nodeName(i int) sharding.NodeID { return sharding.NodeID(fmt.Sprint("n", i)) }

func newModel(seed uint64) *model {
	w := &model{
		rng: rand.New(rand.NewPCG(seed, 1)), now: time.Unix(1000, 0), seen: map[string]int{},
		links: make([]int, modelNodes), wire: make([][]copyOf, modelNodes), late: make([][]copyOf, modelNodes), backs: make([][]op, modelNodes),
		actors: make([]actor, modelStreams+1), indexes: make([]int, modelStreams), byReq: map[*request.Request]*asked{},
	}
	l := &limits{requests: 40, bytes: 1 << 20, total: &budget{limit: 1 << 20}, minPause: time.Millisecond, maxPause: 8 * time.Millisecond, patience: 6 * time.Millisecond, self: nodeName(0), seed: maphash.MakeSeed()}
	for range modelNodes {
		w.executors = append(w.executors, make([]modelExecutor, modelShards))
	}
	for s := range modelShards {
		w.routes = append(w.routes, newShardRoute(sharding.ShardID(s), l))
		w.leader = append(w.leader, s%modelNodes)
		w.tell(s, true)
	}
	return w
}

func (w *model) play(steps int) {
	for range steps {
		w.step++
		switch n := w.rng.IntN(100); {
		case n < 14:
			w.submit(w.rng.IntN(modelStreams))
		case n < 24:
			w.pump()
		case n < 38:
			w.handOver(w.rng.IntN(len(w.actors)))
		case n < 50:
			w.deliver(w.rng.IntN(modelNodes))
		case n < 68:
			w.decide(w.rng.IntN(modelNodes), w.rng.IntN(modelShards))
		case n < 80:
			w.commit(w.rng.IntN(modelShards))
		case n < 90:
			w.reply(w.rng.IntN(modelNodes))
		case n < 93:
			w.move(w.rng.IntN(modelShards), w.rng.IntN(modelNodes+1)-1)
		case n < 94:
			w.tell(w.rng.IntN(modelShards), w.rng.IntN(12) > 0)
		case n < 95:
			w.breakLink(1+w.rng.IntN(modelNodes-1), w.rng.IntN(3) == 0)
		case n < 96:
			w.comeThrough(1 + w.rng.IntN(modelNodes-1))
		case n < 98:
			w.drop(w.rng.IntN(modelShards))
		default:
			w.now = w.now.Add(time.Duration(w.rng.IntN(3)) * time.Millisecond)
		}
	}
}

// heal lets everything succeed until all requests are answered.
func (w *model) heal() {
	for s := range modelShards {
		w.move(s, s%modelNodes)
	}
	for range 400 {
		w.step++
		for s := range modelShards {
			w.tell(s, true)
			w.commit(s)
		}
		for a := range w.actors {
			w.handOver(a)
		}
		w.pump()
		for n := range modelNodes {
			w.deliver(n)
			w.reply(n)
			for s := range modelShards {
				w.decide(n, s)
			}
		}
		w.now = w.now.Add(2 * time.Millisecond)
	}
}

// submit makes a stream send a few commands to entities of any shard.
func (w *model) submit(stream int) {
	a := &w.actors[stream]
	if len(a.reqs) > 0 {
		return
	}
	shard := w.rng.IntN(modelShards)
	for range 1 + w.rng.IntN(3) {
		w.indexes[stream]++
		q := &asked{stream: stream, index: w.indexes[stream]}
		q.req = request.Request{
			Kind: request.Command, Shard: sharding.ShardID(shard), Deadline: w.now.Add(10 * time.Second),
			Entity: sharding.EntityID{Type: "t", ID: fmt.Sprint("e", shard, w.rng.IntN(modelEntities))},
		}
		if w.rng.IntN(10) == 0 {
			q.req.Deadline = w.now.Add(3 * time.Millisecond)
		}
		w.all = append(w.all, q)
		w.byReq[&q.req] = q
		f := &w.routes[shard]
		switch v := f.admit(&q.req); v {
		case answer:
			w.finish(q)
		case send:
			if len(a.reqs) > 0 && a.to != f.to {
				panic("two ways within a step")
			}
			a.to = f.to
			a.reqs = append(a.reqs, q)
		}
		if f.held.len() > f.limits.requests+len(w.all) {
			w.fault = errors.New("more is held than allowed")
		}
	}
}

// pump is one iteration of the router's loop.
func (w *model) pump() {
	a := &w.actors[modelStreams]
	if len(a.reqs) > 0 {
		return
	}
	s := w.rng.IntN(modelShards)
	f := &w.routes[s]
	f.held.limit(w.now, f.limits.patience)
	f.expire(w.now)
	batch := f.next(w.now, nil, 1+w.rng.IntN(5))
	w.answers(f)
	for _, q := range batch {
		a.to = f.to
		a.reqs = append(a.reqs, w.byReq[q])
	}
}

// handOver completes an actor's dispatch.
func (w *model) handOver(i int) {
	a := &w.actors[i]
	for _, q := range a.reqs {
		node := int(a.to.node[1] - '0')
		c := copyOf{q, node, w.links[node]}
		if q.req.Route.Round <= w.lost[node][q.req.Shard] {
			w.complete(q, request.Result{Err: request.ErrUnreachable})
		} else if node == 0 {
			w.executors[0][q.req.Shard].inbox = append(w.executors[0][q.req.Shard].inbox, c)
		} else {
			w.wire[node] = append(w.wire[node], c)
		}
	}
	a.reqs = nil
}

// comeThrough delivers messages that a frozen node or the network held back,
// often when the node leads again.
func (w *model) comeThrough(node int) {
	for _, c := range w.late[node] {
		if w.rng.IntN(2) == 0 {
			w.move(int(c.req.Shard), node)
		}
		w.seen["late"]++
		l := &w.executors[node][c.req.Shard]
		l.inbox = append(l.inbox, c)
	}
	w.late[node] = nil
}

// deliver delivers one request over a link. A new link ends the previous
// link.
func (w *model) deliver(node int) {
	if len(w.wire[node]) == 0 {
		return
	}
	c := w.wire[node][0]
	if len(w.late[node]) > 0 && w.late[node][0].link != c.link {
		w.late[node] = nil
	}
	w.wire[node] = w.wire[node][1:]
	l := &w.executors[node][c.req.Shard]
	l.inbox = append(l.inbox, c)
}

func (w *model) finish(q *asked) {
	q.finished++
	q.result = q.req.Result
	if q.finished > 1 && w.fault == nil {
		w.fault = fmt.Errorf("command %d of stream %d is completed twice", q.index, q.stream)
	}
}

func (w *model) answers(f *shardRoute) {
	for _, q := range f.takeAnswers() {
		w.finish(w.byReq[q])
	}
}

// complete gives an outcome to the route.
func (w *model) complete(q *asked, result request.Result) {
	f := &w.routes[q.req.Shard]
	q.req.Result = result
	if f.complete(&q.req, w.now) == answer {
		w.finish(q)
	}
	w.answers(f)
}
