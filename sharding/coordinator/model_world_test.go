package coordinator_test

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/coordinator"
	"github.com/hostd/hostd/sharding/meta"
)

const (
	tickTime  = 250 * time.Millisecond
	modelDead = 5 * time.Second
	maxBuilds = 3
	maxOnNode = 2
)

// host models a node.
type host struct {
	id          sharding.NodeID
	disk        int
	incarnation uint64
	zone        string
	running     bool
	cut         bool // disconnected from all nodes
	apart       bool // disconnected from the coordinator only
	mute        bool // its replicas receive and send nothing, but the node still reports
	dead        bool // permanently, or its disk was lost
	gone        bool // left the cluster
	leaving     bool
	member      bool // the metadata knows its current incarnation
	caught      catch
	seq, passed uint64
	draining    bool
	pace        time.Duration
	// led has, for each shard that the host leads, the term since which it leads,
	// and the metadata index that it must have applied before it changes the
	// membership.
	led map[sharding.ShardID]catch
}

type catch struct {
	term  sharding.Term
	index uint64
	known bool
}

func (h *host) up() bool     { return h.running && !h.dead }
func (h *host) linked() bool { return h.up() && !h.cut }

// world models a cluster with a coordinator and Converge.
type world struct {
	rng        *rand.Rand
	now        time.Time
	hosts      []*host
	groups     map[sharding.ShardID]*group
	state      *meta.State
	index      uint64 // of the metadata log, applied to state
	views      map[uint64]*meta.View
	coord      *coordinator.Coordinator
	at         *host // where coord runs
	term       sharding.Term
	messages   []message
	operations []coordinator.Operation
	moves      map[sharding.NodeID][]coordinator.Transfer
	rejoin     map[sharding.NodeID]bool
	// troubles and pending are from the last plan.
	troubles []coordinator.Impairment
	pending  []coordinator.Pending
	ripe     map[sharding.ReplicaID]bool // replicas that have been caught up
	baffled  map[sharding.ReplicaID]bool // replicas that could not read their log
	born     map[sharding.ReplicaID]sharding.ShardID
	builds   int
	done     map[uint64]coordinator.Progress
	sabotage sabotage
	fault    string
	stats    map[string]int
	quiet    bool
}

type message struct {
	due    time.Time
	report coordinator.Report
}

// sabotage plants a fault in the tested code, to check that the model detects
// it.
type sabotage struct {
	from     uint64 // a seed shortly before the seed that detects the fault
	converge func(meta.Placement, coordinator.Conf) (coordinator.Change, bool)
	report   func(*coordinator.Report)
	plan     func(*world, *coordinator.Plan)
	stale    bool // leaders converge with outdated views
}

const shards = 4

func newWorld(seed uint64, m sabotage) *world {
	w := &world{
		rng: rand.New(rand.NewPCG(seed, 11)), now: time.Unix(1_700_000_000, 0), groups: map[sharding.ShardID]*group{}, state: meta.New(),
		views: map[uint64]*meta.View{}, moves: map[sharding.NodeID][]coordinator.Transfer{}, rejoin: map[sharding.NodeID]bool{},
		ripe: map[sharding.ReplicaID]bool{}, baffled: map[sharding.ReplicaID]bool{}, born: map[sharding.ReplicaID]sharding.ShardID{}, done: map[uint64]coordinator.Progress{},
		sabotage: m, stats: map[string]int{},
	}
	if m.converge == nil {
		w.sabotage.converge = coordinator.Converge
	}
	founder := w.addHost()
	g := w.group(0, []sharding.ReplicaID{meta.BootstrapReplica})
	w.create(founder, g, meta.BootstrapReplica)
	g.crown(g.replicas[meta.BootstrapReplica])
	founder.member = true
	w.propose(meta.CreateCluster(meta.Cluster{ID: "c", Format: 1, Shards: shards}, w.describe(founder)))
	if w.rng.IntN(2) == 0 {
		w.propose(meta.PutPolicy(meta.Policy{Replication: 3, MinMembers: 1 + w.rng.IntN(4), Rebalance: true}))
	}
	return w
}

func (w *world) fail(format string, args ...any) {
	if w.fault == "" {
		w.fault = fmt.Sprintf(format, args...)
	}
}

func (w *world) addHost() *host {
	h := &host{id: sharding.NodeID(fmt.Sprintf("n%d", len(w.hosts)+1)), disk: 1, incarnation: 1, running: true, led: map[sharding.ShardID]catch{}}
	if w.rng.IntN(3) == 0 {
		h.zone = string(rune('x' + w.rng.IntN(2)))
	}
	w.hosts = append(w.hosts, h)
	return h
}

func (w *world) describe(h *host) meta.Member {
	return meta.Member{Node: h.id, Address: string(h.id) + ":1", Status: meta.StatusUp, Disk: fmt.Sprint("d", h.disk), Incarnation: h.incarnation, Zone: h.zone}
}

func (w *world) group(s sharding.ShardID, first []sharding.ReplicaID) *group {
	g := w.groups[s]
	if g == nil {
		g = &group{shard: s, first: first, replicas: map[sharding.ReplicaID]*replica{}, ghosts: map[sharding.ReplicaID]*replica{},
			body: map[uint64][]byte{}, confs: []confAt{{0, conf{voters: first}}}}
		w.groups[s] = g
	}
	return g
}

// create creates a replica on a node. No id may be created twice, because the
// second replica would not know the votes of the first.
func (w *world) create(h *host, g *group, id sharding.ReplicaID) {
	if s, was := w.born[id]; was {
		w.fail("replica %d of shard %d was made before, of shard %d", id, g.shard, s)
	}
	w.born[id] = g.shard
	g.replicas[id] = &replica{id: id, node: h}
}

// on returns the host's replica of the group's shard, of which there is at most
// one.
func (g *group) on(h *host) *replica {
	for _, r := range g.replicas {
		if r.node == h {
			return r
		}
	}
	return nil
}

// metaLead returns the leader of the metadata shard if it has applied
// everything.
func (w *world) metaLead() *replica {
	l := w.groups[0].lead()
	if l == nil || !l.node.linked() {
		return nil
	}
	return l
}

func (w *world) propose(command []byte) {
	g := w.groups[0]
	if l := g.lead(); l != nil {
		g.body[g.append(nil)] = command
	}
}

// commit applies the committed part of the metadata log.
func (w *world) commit() {
	g := w.groups[0]
	for w.index < g.commit {
		w.index++
		if body := g.body[w.index]; body != nil {
			before := w.state.View()
			_, result, _ := w.state.Apply(w.index, body)
			w.applied(before, body, result)
		}
		w.views[w.index] = w.state.View()
	}
}

func (w *world) applied(before *meta.View, body, result []byte) {
	res, err := meta.DecodeResult(result)
	if err != nil {
		w.stats["refused"]++
		return
	}
	if res.Joined != nil {
		w.joined(res.Joined)
	}
	builds := 0
	on := map[sharding.NodeID]int{}
	for _, p := range w.state.View().Placements() {
		for _, r := range p.Replicas {
			if p.Shard != 0 && r.State == meta.ReplicaLearner && !w.ripe[r.ID] && !w.baffled[r.ID] && !r.Lost {
				if old, _ := before.Placement(p.Shard); !slices.Contains(old.IDs(meta.ReplicaVoter), r.ID) {
					builds++
					on[r.Node]++
				}
			}
		}
	}
	if w.sabotage.report == nil && bytes.Contains(body, []byte(`"add":`)) && builds > w.builds && (builds > maxBuilds || slices.Max(slices.Collect(maps.Values(on))) > maxOnNode) {
		w.fail("%d replicas are built at one time: %v", builds, on)
	}
	w.builds = builds
}

// joined handles the result of Join, which may get lost.
func (w *world) joined(j *meta.JoinResult) {
	h := w.host(j.Member.Node)
	if h == nil || !h.linked() || j.Member.Incarnation != h.incarnation || j.Member.Disk != w.describe(h).Disk || w.rng.IntN(8) == 0 {
		return
	}
	h.member, h.leaving = true, j.Member.Status == meta.StatusLeaving
	delete(w.rejoin, h.id)
	g := w.groups[0]
	if r := g.on(h); r != nil && r.id != j.Replica {
		w.remove(g, r)
	}
	if g.replicas[j.Replica] == nil {
		w.create(h, g, j.Replica)
		h.caught = catch{} // the host first sees metadata from before it existed
	}
}

func (w *world) host(id sharding.NodeID) *host {
	for _, h := range w.hosts {
		if h.id == id {
			return h
		}
	}
	return nil
}

// view returns the metadata as the host has applied it, nil if it has none.
func (w *world) view(h *host) *meta.View {
	if r := w.groups[0].on(h); r != nil {
		return w.views[r.applied]
	}
	return nil
}
