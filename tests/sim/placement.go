package sim

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hostd/hostd/journal/raftgroup"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/coordinator"
	"github.com/hostd/hostd/sharding/meta"
)

// registry is the metadata with its coordinator, which decides where replicas
// are placed. It has a single copy and never fails, but nodes see it with a
// delay.
type registry struct {
	state     *meta.State
	index     uint64
	coord     *coordinator.Coordinator
	at        int // node where the coordinator runs
	term      sharding.Term
	reports   []report
	transfers map[sharding.NodeID][]coordinator.Transfer
	number    uint64 // number of the latest operation
	still     bool
}

// report is a coordinator report in flight.
type report struct {
	at int
	coordinator.Report
}

// governed is a node's view of the metadata.
type governed struct {
	disk        int // number of the disk; a new disk replaces a lost disk
	incarnation uint64
	seq         uint64
	view        *meta.View
	fresh       bool // the view has been caught up since the process started
	announced   bool
	passed      uint64 // index of the view in the last pass
	// confirmed holds, by shard, the term of the last election after which the
	// node caught up with the metadata.
	confirmed map[sharding.ShardID]sharding.Term
}

// begin resets the state for a new process.
func (g *governed) begin() {
	g.incarnation++
	g.seq, g.passed, g.fresh, g.announced = 0, 0, false, false
	g.confirmed = map[sharding.ShardID]sharding.Term{}
}

// found creates the cluster. The coordinator then places its shards.
func (w *World) found() {
	w.meta = &registry{state: meta.New(), term: 1}
	w.recoordinate()
	for i, n := range w.nodes {
		n.gov.incarnation, n.gov.view = 1, w.meta.state.View()
		if i == 0 {
			founder := n.describe()
			founder.Status = meta.StatusUp
			w.do(meta.CreateCluster(meta.Cluster{ID: "sim", Format: 1, Shards: uint32(len(w.shards)), CreatedAt: 1}, founder))
		} else {
			w.do(meta.Join(n.describe()))
		}
	}
}

func (n *node) describe() meta.Member {
	return meta.Member{
		Node: n.w.name(n.id), Address: fmt.Sprintf("10.0.0.%d:7000", n.id+1), Disk: fmt.Sprintf("disk%d-%d", n.id, n.gov.disk),
		Incarnation: n.gov.incarnation, Roles: []string{"host"}, Speaks: sharding.SupportedVersions,
	}
}

// do applies a metadata command.
func (w *World) do(command []byte) {
	w.meta.index++
	_, result, err := w.meta.state.Apply(w.meta.index, command)
	if err == nil {
		_, err = meta.DecodeResult(result)
	}
	w.note("meta %s %v", command, err)
}

// recoordinate replaces the coordinator by a new coordinator on a random node.
func (w *World) recoordinate() {
	m := w.meta
	m.at, m.term = w.rng.IntN(len(w.nodes)), m.term+1
	m.reports, m.transfers = nil, map[sharding.NodeID][]coordinator.Transfer{}
	m.coord = coordinator.New(coordinator.Options{DeadAfter: 3 * time.Second, Fresh: 2 * time.Second, TransferTimeout: time.Second})
}

// govern lets the coordinator decide periodically.
func (w *World) govern() {
	m := w.meta
	if !w.healing && w.chance(600) {
		w.recoordinate()
	}
	if m.still || w.step%12 != 0 {
		return
	}
	in := coordinator.Input{Now: time.Unix(0, int64(w.step)*int64(20*time.Millisecond)), View: m.state.View(), Reachable: map[sharding.NodeID]bool{}}
	for i, n := range w.nodes {
		in.Reachable[w.name(i)] = n.up && n.paused <= w.step && w.reaches(i)
	}
	waiting := m.reports[:0]
	for _, r := range m.reports {
		if r.at <= w.step {
			in.Reports = append(in.Reports, r.Report)
		} else {
			waiting = append(waiting, r)
		}
	}
	m.reports = waiting
	if !w.healing && w.chance(max(1, w.profile.moves/12)) {
		in.Operations = append(in.Operations, w.order())
	}
	for _, member := range in.View.Members() {
		if w.healing && member.Draining { // during healing, only this resumes a drained member
			m.number++
			in.Operations = append(in.Operations, coordinator.Operation{ID: m.number, Kind: coordinator.OperationResume, Node: member.Node})
		}
	}
	plan := m.coord.Step(in)
	for _, command := range plan.Commands {
		w.do(command)
	}
	for _, t := range plan.Transfers {
		m.transfers[t.From] = append(m.transfers[t.From], t)
	}
	for _, name := range plan.Rejoin {
		w.nodes[w.index(name)].gov.announced = false
	}
}

// order draws an operation that an operator may request.
func (w *World) order() coordinator.Operation {
	w.meta.number++
	o := coordinator.Operation{ID: w.meta.number, Kind: coordinator.OperationMove, Shard: w.shards[w.rng.IntN(len(w.shards))], Node: w.name(w.rng.IntN(len(w.nodes)))}
	switch w.rng.IntN(8) {
	case 0:
		o.Kind = coordinator.OperationDrain
	case 1:
		o.Kind = coordinator.OperationDown
	case 2:
		o.Kind = coordinator.OperationRebalance
	case 3:
		o.Kind = coordinator.OperationResume
	}
	w.note("order %d %d %s", o.Kind, o.Shard, o.Node)
	return o
}

// reaches reports whether a node and the coordinator's node are connected in
// both directions.
func (w *World) reaches(i int) bool {
	return !w.cut[[2]int{i, w.meta.at}] && !w.cut[[2]int{w.meta.at, i}]
}

// govern runs the node's part of the placement of replicas.
func (n *node) govern() {
	w, g := n.w, &n.gov
	if w.meta.still || !w.reaches(n.id) {
		return
	}
	if w.rng.IntN(15) == 0 {
		n.catchUp()
	}
	if !g.fresh {
		return
	}
	if !g.announced {
		w.do(meta.Join(n.describe()))
		g.announced = true
	}
	if w.rng.IntN(10) == 0 {
		n.converge()
	}
	if n.up && w.rng.IntN(20) == 0 {
		n.report()
	}
}

func (n *node) catchUp() { n.gov.view, n.gov.fresh = n.w.meta.state.View(), true }

// statuses returns the status of each of the node's replicas.
func (n *node) statuses() (out []raftgroup.Status) {
	for _, s := range n.w.shards {
		if st, err := n.driver.Core().Status(s); err == nil {
			out = append(out, st)
		}
	}
	return out
}

// converge handles all replicas once, like a real node: it creates placed
// replicas, removes replicas that are no longer placed, and moves the groups
// that the node leads towards their placements.
func (n *node) converge() {
	statuses := n.statuses()
	for _, st := range statuses {
		if st.Self && n.gov.confirmed[st.Shard] != st.Term {
			n.catchUp()
			n.gov.confirmed[st.Shard] = st.Term
		}
	}
	view := n.gov.view
	if self, ok := view.Member(n.w.name(n.id)); !ok || self.Disk != n.describe().Disk {
		return
	}
	if n.createPlaced(view, statuses); !n.up {
		return
	}
	for _, st := range statuses {
		if _, placed := view.ReplicaNode(st.Shard, st.Replica); !placed {
			err, logged := n.driver.Remove([]raftgroup.ReplicaRef{{Shard: st.Shard, Replica: st.Replica}})
			if n.changed("remove", st.Shard, st.Replica, err, logged); !n.up {
				return
			}
			n.w.count.removed++
		} else if st.Self {
			n.step(view, &st)
		}
	}
	n.gov.passed = view.Index()
}

// createPlaced creates the replicas that are placed on this node and do not
// exist yet.
func (n *node) createPlaced(view *meta.View, statuses []raftgroup.Status) {
	for _, h := range view.HostedBy(n.w.name(n.id)) {
		there := slices.ContainsFunc(statuses, func(st raftgroup.Status) bool { return st.Shard == h.Shard })
		if there || h.Shard == sharding.MetaShard || h.Replica.State == meta.ReplicaLeaving {
			continue
		}
		err, logged := n.driver.Create([]raftgroup.GroupConfig{{Shard: h.Shard, Replica: h.Replica.ID, Voters: h.First}})
		if n.changed("create", h.Shard, h.Replica.ID, err, logged); !n.up {
			return
		}
		n.w.count.created++
	}
}

// changed handles the result of creating or removing a replica.
func (n *node) changed(what string, s sharding.ShardID, r sharding.ReplicaID, err error, logged bool) {
	n.w.note("%s %d %d %d %v", what, n.id, s, r, err)
	if logged {
		n.check(err)
	} else if err != nil {
		n.w.fail("node %d: %s replica %d of shard %d: %v", n.id, what, r, s, err)
	}
}

// step makes the next step of a membership change.
func (n *node) step(view *meta.View, st *raftgroup.Status) {
	p, placed := view.Placement(st.Shard)
	if !placed {
		return
	}
	conf := coordinator.Conf{
		Self: st.Replica, Voters: st.Voters, Learners: st.Learners, Outgoing: st.Outgoing,
		Match: st.Match, Commit: st.Commit, Next: view.NextReplica(), Unreachable: slices.Clone(st.Inactive),
	}
	for _, id := range slices.Concat(st.Voters, st.Learners) {
		if at, known := view.ReplicaNode(st.Shard, id); !known || n.quiet[n.w.index(at)] {
			conf.Unreachable = append(conf.Unreachable, id)
		}
	}
	change, needed := coordinator.Converge(p, conf)
	if !needed {
		return
	}
	n.w.note("converge %d %d %+v", n.id, st.Shard, change)
	core := n.driver.Core()
	var err error
	if change.Transfer != 0 {
		err = core.TransferLeader(st.Shard, change.Transfer)
	} else {
		err = core.ChangeMembers(st.Shard, st.Term, raftgroup.Change{AddLearners: change.AddLearners, AddVoters: change.AddVoters, Remove: change.Remove})
	}
	switch {
	case err == nil:
		n.w.count.changes++
	case !errors.Is(err, raftgroup.ErrNotLeader) && !errors.Is(err, raftgroup.ErrFenced) && !errors.Is(err, raftgroup.ErrDropped):
		n.w.fail("node %d shard %d: %+v: %v", n.id, st.Shard, change, err)
	}
}

// report sends the coordinator a report and executes the leadership transfers
// that it requested.
func (n *node) report() {
	w, m := n.w, n.w.meta
	n.gov.seq++
	r := coordinator.Report{Node: w.name(n.id), Incarnation: n.gov.incarnation, Seq: n.gov.seq, View: n.gov.passed}
	statuses := n.statuses()
	r.Replicas = uint32(len(statuses))
	for _, st := range statuses {
		if p, _ := n.gov.view.Placement(st.Shard); coordinator.MustReport(p, st.Self) {
			r.Shards = append(r.Shards, coordinator.ShardReport{
				Shard: st.Shard, Replica: st.Replica, Term: st.Term, Leader: st.Self, Commit: st.Commit, Applied: st.Applied, Last: st.Last,
				Voters: st.Voters, Learners: st.Learners, Outgoing: st.Outgoing, Match: st.Match,
			})
		}
	}
	if sr, ok := w.metaReport(n.id); ok {
		r.Shards = append(r.Shards, sr)
	}
	if !w.healing && w.rng.Float64() < w.profile.loss {
		return
	}
	m.reports = append(m.reports, report{w.step + w.rng.IntN(10), r})
	for _, t := range m.transfers[r.Node] {
		if to := w.replica(t.Shard, w.index(t.To)); to != 0 && t.Shard != sharding.MetaShard {
			_ = n.driver.Core().TransferLeader(t.Shard, to) // fails if the node is no longer the leader
		}
	}
	delete(m.transfers, r.Node)
}

// metaReport reports the metadata shard as always healthy.
func (w *World) metaReport(node int) (r coordinator.ShardReport, ok bool) {
	p, _ := w.meta.state.View().Placement(sharding.MetaShard)
	self, here := p.ReplicaOn(w.name(node))
	if !here {
		return r, false
	}
	r = coordinator.ShardReport{
		Shard: sharding.MetaShard, Replica: self.ID, Term: w.meta.term, Commit: w.meta.index, Applied: w.meta.index, Last: w.meta.index,
		Voters: p.IDs(meta.ReplicaVoter), Learners: p.IDs(meta.ReplicaLearner), Match: map[sharding.ReplicaID]uint64{},
	}
	for _, id := range slices.Concat(r.Voters, r.Learners) {
		r.Match[id] = w.meta.index
	}
	if lead, up := w.metaLead(p); up && lead == node {
		r.Leader = true
	}
	return r, true
}

// metaLead returns the first running voter of the metadata shard, starting at
// the coordinator's node.
func (w *World) metaLead(p meta.Placement) (int, bool) {
	for i := range w.nodes {
		at := (w.meta.at + i) % len(w.nodes)
		if r, here := p.ReplicaOn(w.name(at)); here && r.State == meta.ReplicaVoter && w.nodes[at].up {
			return at, true
		}
	}
	return 0, false
}
