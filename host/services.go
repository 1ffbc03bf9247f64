package host

import (
	"context"
	"sync"
	"time"

	"github.com/hostd/hostd/host/cluster"
	"github.com/hostd/hostd/host/entity"
	"github.com/hostd/hostd/host/rpc"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// services are the node's parts as the server sees them.
func (n *Node) services() rpc.Deps {
	return rpc.Deps{
		Runtime: requests{n}, Types: typeService{n}, Histories: historyService{n},
		Entities: entityService{n}, Modules: moduleService{n}, Cluster: clusterService{n},
		Orders: orderService{n}, Settings: settingService{n}, States: stateService{n}, Letters: letterService{n}, Orderings: orderings{n}, Nodes: nodes{n},
		Transfers: transferService{n}, Hot: entityService{n},
	}
}

type typeService struct{ n *Node }

// Lookup says "unknown" only once this node has all the metadata that was
// committed before the question. It waits no longer than two readings take.
func (s typeService) Lookup(ctx context.Context, entityType string) (rpc.Type, error) {
	if t := s.n.bindings.served(entityType); t != nil {
		return t.rpc, nil
	}
	if !s.n.caughtUp.Load() {
		return rpc.Type{}, rpc.ErrNotReady
	}
	if _, bound := s.n.metadata.View().Binding(entityType); bound {
		return rpc.Type{}, rpc.ErrModuleNotLoaded
	}
	if s.n.unknown.confirm(ctx, s.n.metadata) != nil {
		return rpc.Type{}, rpc.ErrNotReady
	}
	if _, bound := s.n.metadata.View().Binding(entityType); bound {
		return rpc.Type{}, rpc.ErrModuleNotLoaded
	}
	return rpc.Type{}, entity.ErrUnknownType
}

// confirmation makes sure that nothing is called unknown which another node
// knows: callers who ask for something unknown share readings of the metadata
// that began after they asked.
type confirmation struct {
	turn  chan struct{} // of one slot: held while reading
	began time.Time     // the last reading
	err   error         // what came of it
}

// confirmTime bounds a reading; a node that hears no leader says so then.
const confirmTime = time.Second

func newConfirmation() *confirmation { return &confirmation{turn: make(chan struct{}, 1)} }

// confirm returns once the metadata was read after the call. It takes as long as
// ctx lasts, and no longer than two readings.
func (c *confirmation) confirm(ctx context.Context, m *cluster.Metadata) error {
	asked := time.Now()
	select {
	case c.turn <- struct{}{}:
		defer func() { <-c.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if c.began.After(asked) {
		return c.err
	}
	// A reading is for all who wait for it, so it outlives its caller.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), confirmTime)
	defer cancel()
	c.began = time.Now()
	c.err = m.CatchUp(ctx)
	return c.err
}

type historyService struct{ n *Node }

func (s historyService) Read(ctx context.Context, id sharding.EntityID, from journal.Sequence, fn func(*journal.Record) error) error {
	info, err := s.n.machine.Info(s.n.region.ShardOf(id), id)
	if err != nil {
		return err
	}
	if first := info.Begins(); from < first && first > 1 {
		return &journal.CutError{First: first}
	}
	first := true
	return s.n.machine.Read(ctx, s.n.region.ShardOf(id), id, from, func(_ journal.Position, r *journal.Record) error {
		if first && r.Expected >= max(from, 1) { // it was cut between the two readings
			return &journal.CutError{First: r.Expected + 1}
		}
		first = false
		return fn(r)
	})
}

// followPeriod is how often a follower looks for records by itself when there
// are too many to wake.
const followPeriod = 200 * time.Millisecond

func (s historyService) Watch(id sharding.EntityID) (<-chan struct{}, func()) {
	return watch(func() (<-chan struct{}, func(), error) { return s.n.machine.Subscribe(s.n.region.ShardOf(id), id) })
}

// watch subscribes, or wakes every now and then where that fails.
func watch(subscribe func() (wake <-chan struct{}, cancel func(), err error)) (<-chan struct{}, func()) {
	wake, cancel, err := subscribe()
	if err == nil {
		return wake, cancel
	}
	ch, stop := make(chan struct{}, 1), make(chan struct{})
	var once sync.Once
	go func() {
		every := time.NewTicker(followPeriod)
		defer every.Stop()
		for {
			select {
			case <-every.C:
				select {
				case ch <- struct{}{}:
				default:
				}
			case <-stop:
				return
			}
		}
	}()
	return ch, func() { once.Do(func() { close(stop) }) }
}

type entityService struct{ n *Node }

func (s entityService) Shards() uint32 { return s.n.id.Shards }

func (s entityService) ShardOfPrefix(entityType, idPrefix string) (sharding.ShardID, bool) {
	return s.n.shardKeys.prefix(entityType, idPrefix)
}

func (s entityService) ShardOf(id sharding.EntityID) sharding.ShardID { return s.n.region.ShardOf(id) }

func (s entityService) Get(ctx context.Context, id sharding.EntityID) (rpc.EntityInfo, error) {
	shard := s.n.region.ShardOf(id)
	head, err := s.n.machine.Info(shard, id)
	if err != nil {
		return rpc.EntityInfo{}, err
	}
	live, err := s.inspect(ctx, []sharding.EntityID{id})
	if err != nil {
		return rpc.EntityInfo{}, err
	}
	info := rpc.EntityInfo{Sequence: head.Sequence, Shard: shard, Node: s.n.id.Node, Status: "active"}
	if t := s.n.bindings.Lookup(id.Type); t != nil {
		info.Module = t.Digest
	}
	switch {
	case head.Records == 0:
		info.Status = "absent"
	case head.Deleted:
		info.Status = "deleted"
	}
	if l := live[0]; l != nil {
		info.Resident, info.LastError, info.Faults = l.Resident, l.LastErr, l.Faults
		switch t := s.n.bindings.Lookup(id.Type); {
		case l.Status == "parked":
			info.Status, info.ParkedUntil = "parked", l.ParkedUntil
		case l.Resident && t != nil && t.Transient:
			info.Status = "active"
		}
	}
	if info.PendingSends, _, err = s.n.machine.PendingSends(shard, id); err != nil {
		return rpc.EntityInfo{}, err
	}
	if err = s.size(ctx, shard, id, &info); err != nil {
		return rpc.EntityInfo{}, err
	}
	if info.Timers, err = s.n.machine.TimersOf(ctx, shard, id, shownTimers); err != nil {
		return rpc.EntityInfo{}, err
	}
	info.Fuel, info.Acts, err = (stateService{s.n}).history(ctx, shard, id, head.Sequence)
	return info, err
}

// inspect asks the lanes what they know of entities; nil where this node does
// not lead the entity's shard.
func (s entityService) inspect(ctx context.Context, ids []sharding.EntityID) ([]*entity.Info, error) {
	w := inspection{left: len(ids), done: make(chan struct{})}
	reqs := make([]*entity.Request, len(ids))
	for i, id := range ids {
		reqs[i] = &entity.Request{Kind: entity.Inspect, Entity: id, ExpectedSequence: entity.NoExpectation, Done: &w}
	}
	s.n.region.Submit(append([]*entity.Request(nil), reqs...))
	select {
	case <-w.done:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	out := make([]*entity.Info, len(ids))
	for i, r := range reqs {
		out[i] = r.Result.Info
	}
	return out, nil
}

// inspection waits for a number of requests.
type inspection struct {
	mu   sync.Mutex
	left int
	done chan struct{}
}

func (w *inspection) Complete(*entity.Request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.left--; w.left == 0 {
		close(w.done)
	}
}
