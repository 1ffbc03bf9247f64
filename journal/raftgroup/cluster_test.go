package raftgroup

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hostd/hostd/journal/raftgroup/wire"
	"github.com/hostd/hostd/sharding"
)

// network carries frames between loops in memory. Links can be cut.
type network struct {
	mu    sync.Mutex
	loops map[sharding.NodeID]chan delivery
	up    map[sharding.NodeID]*Loop
	cut   map[[2]sharding.NodeID]bool
	heard map[[2]sharding.NodeID]time.Time
}

type delivery struct {
	from  sharding.NodeID
	frame []byte
}

// listen reports to every node which other nodes are alive or suspected, like a
// process that pings its peers.
func (n *network) listen(silence time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := time.Now()
	for at, loop := range n.up {
		for from := range n.up {
			if link := [2]sharding.NodeID{from, at}; from != at && !n.cut[link] {
				n.heard[link] = now
				loop.PeerAlive(from)
			}
		}
		for link, last := range n.heard {
			if link[1] == at && now.Sub(last) > silence {
				delete(n.heard, link)
				loop.PeerSuspected(link[0])
			}
		}
	}
}

// port is a node's end of the network.
type port struct {
	net  *network
	from sharding.NodeID
}

func (p port) Send(to sharding.NodeID, frame []byte) {
	p.net.mu.Lock()
	defer p.net.mu.Unlock()
	if p.net.cut[[2]sharding.NodeID{p.from, to}] || p.net.loops[to] == nil {
		return
	}
	select {
	case p.net.loops[to] <- delivery{p.from, frame}:
	default: // the queue is full: the frame is lost
	}
}

// isolate cuts a node off; with "" it cuts off no node.
func (n *network) isolate(id sharding.NodeID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	clear(n.cut)
	for other := range n.loops {
		if id != "" && other != id {
			n.cut[[2]sharding.NodeID{id, other}] = true
			n.cut[[2]sharding.NodeID{other, id}] = true
		}
	}
}

// cluster is three nodes with the real loop and log on in-memory disks.
type cluster struct {
	t     *testing.T
	net   *network
	nodes []*member
	quit  chan struct{}
	wait  sync.WaitGroup
}

type member struct {
	*single
	c    *cluster
	id   sharding.NodeID
	quit chan struct{}
	wait sync.WaitGroup
}

func newCluster(t *testing.T) *cluster {
	c := &cluster{t: t, quit: make(chan struct{}), net: &network{
		loops: map[sharding.NodeID]chan delivery{}, up: map[sharding.NodeID]*Loop{},
		cut: map[[2]sharding.NodeID]bool{}, heard: map[[2]sharding.NodeID]time.Time{},
	}}
	for i := range 3 {
		m := &member{c: c, id: sharding.NodeID(fmt.Sprint("n", i))}
		m.single = &single{t: t}
		c.nodes = append(c.nodes, m)
		m.single.opts = Options{
			Self: m.id, Transport: port{c.net, m.id}, MaxRecordBytes: 16 << 10, RetainBytes: 1 << 40, TruncateTicks: 3,
			NewTicker: func(time.Duration) Ticker { return wallTicker{time.NewTicker(5 * time.Millisecond)} },
			Placement: placement{locate: nodeOf},
		}
		m.single.prepare()
		m.begin()
	}
	c.wait.Go(func() {
		for {
			select {
			case <-c.quit:
				return
			case <-time.After(10 * time.Millisecond):
				c.net.listen(35 * time.Millisecond)
			}
		}
	})
	return c
}

// nodeOf places replica 12 on n2.
// placement is a Placement made of functions; nil functions know nothing.
type placement struct {
	locate    func(sharding.ShardID, sharding.ReplicaID) (sharding.NodeID, bool)
	isUnknown func(sharding.ShardID, sharding.ReplicaID) bool
}

func (p placement) Locate(s sharding.ShardID, r sharding.ReplicaID) (sharding.NodeID, bool) {
	if p.locate == nil {
		return "", false
	}
	return p.locate(s, r)
}

func (p placement) IsUnknownReplica(s sharding.ShardID, r sharding.ReplicaID) bool {
	return p.isUnknown != nil && p.isUnknown(s, r)
}

func nodeOf(_ sharding.ShardID, r sharding.ReplicaID) (sharding.NodeID, bool) {
	return sharding.NodeID(fmt.Sprint("n", r%10)), true
}

// begin starts the node and the goroutine that delivers its frames.
func (m *member) begin() {
	m.c.t.Helper()
	m.single.start()
	frames := make(chan delivery, 256)
	m.quit = make(chan struct{})
	m.c.net.mu.Lock()
	m.c.net.loops[m.id], m.c.net.up[m.id] = frames, m.loop
	m.c.net.mu.Unlock()
	loop, quit := m.loop, m.quit
	m.wait.Go(func() {
		for {
			select {
			case f := <-frames:
				if err := loop.Receive(f.from, f.frame); err != nil && !errors.Is(err, ErrStopped) {
					m.c.t.Error(err)
				}
			case <-quit:
				return
			}
		}
	})
}

func (m *member) end(end func()) {
	m.c.net.mu.Lock()
	delete(m.c.net.loops, m.id)
	delete(m.c.net.up, m.id)
	m.c.net.mu.Unlock()
	end()
	close(m.quit)
	m.wait.Wait()
}

func (c *cluster) stop() {
	close(c.quit)
	c.wait.Wait()
	for _, m := range c.nodes {
		m.end(m.single.stop)
		if len(m.machine.faults) > 0 {
			c.t.Error(m.id, m.machine.faults)
		}
	}
}

func (c *cluster) create(voters []sharding.ReplicaID, shards ...sharding.ShardID) {
	c.t.Helper()
	for i, m := range c.nodes {
		for _, s := range shards {
			config := GroupConfig{Shard: s, Replica: replicaOf(s, i)}
			for _, v := range voters {
				config.Voters = append(config.Voters, sharding.ReplicaID(s)*10+v)
			}
			if err := m.loop.CreateGroups([]GroupConfig{config}); err != nil {
				c.t.Fatal(err)
			}
		}
	}
}

func replicaOf(s sharding.ShardID, node int) sharding.ReplicaID {
	return sharding.ReplicaID(int(s)*10 + node)
}

// leader waits until one of the nodes leads the shard and has applied the first
// entry of its term.
func (c *cluster) leader(s sharding.ShardID, among ...int) (at *member, term sharding.Term) {
	c.t.Helper()
	eventually(c.t, "a leader", func() bool {
		at, term = nil, 0
		for _, i := range among {
			m := c.nodes[i]
			m.machine.mu.Lock()
			e := m.machine.entries[s]
			l := m.sink.leader(s)
			if l.Self && l.Term > term && len(e) > 0 && e[len(e)-1].Term == l.Term {
				at, term = m, l.Term
			}
			m.machine.mu.Unlock()
		}
		return at != nil
	})
	return at, term
}

// write proposes until the data is applied on the leading node. It retries
// after a drop or a lost leadership, with the same data.
func (c *cluster) write(s sharding.ShardID, data string, among ...int) {
	c.t.Helper()
	eventually(c.t, "write of "+data, func() bool {
		m, term := c.leader(s, among...)
		if slices.Contains(m.machine.data(s), data) {
			return true
		}
		if m.loop.Propose(s, term, 1, []byte(data)) != nil {
			return false
		}
		for range 2000 {
			if slices.Contains(m.machine.data(s), data) {
				return true
			}
			if m.sink.leader(s).Term != term {
				return false
			}
			time.Sleep(100 * time.Microsecond)
		}
		return false
	})
}

// converge waits until all nodes have applied the same entries.
func (c *cluster) converge(s sharding.ShardID) []string {
	c.t.Helper()
	var data []string
	eventually(c.t, "convergence", func() bool {
		data = c.nodes[0].machine.data(s)
		return slices.Equal(data, c.nodes[1].machine.data(s)) && slices.Equal(data, c.nodes[2].machine.data(s))
	})
	return data
}

func TestThreeReplicasFailOver(t *testing.T) {
	c := newCluster(t)
	shards := []sharding.ShardID{1, 2, 3}
	c.create([]sharding.ReplicaID{0, 1, 2}, shards...)
	for round := range 3 {
		for _, s := range shards {
			for i := range 5 {
				c.write(s, fmt.Sprintf("%d/%d", round, i), 0, 1, 2)
			}
		}
		m, _ := c.leader(1, 0, 1, 2)
		down := slices.Index(c.nodes, m)
		others := slices.DeleteFunc([]int{0, 1, 2}, func(i int) bool { return i == down })
		m.machine.flush()
		m.end(m.crash)
		for _, s := range shards {
			c.write(s, fmt.Sprintf("%d/without", round), others...)
		}
		m.begin()
	}
	for _, s := range shards {
		data := c.converge(s)
		for round := range 3 {
			for i := range 5 {
				if !slices.Contains(data, fmt.Sprintf("%d/%d", round, i)) {
					t.Errorf("shard %d lost %d/%d: %v", s, round, i, data)
				}
			}
		}
	}
	c.stop()
}

func TestIsolatedLeaderStepsDown(t *testing.T) {
	c := newCluster(t)
	c.create([]sharding.ReplicaID{0, 1, 2}, 1)
	c.write(1, "before", 0, 1, 2)
	old, term := c.leader(1, 0, 1, 2)
	at := slices.Index(c.nodes, old)
	others := slices.DeleteFunc([]int{0, 1, 2}, func(i int) bool { return i == at })
	c.net.isolate(old.id)
	if err := old.loop.Propose(1, term, 7, []byte("cut off")); err != nil {
		t.Fatal(err)
	}
	if err := old.loop.ReadIndex(1, 70); err != nil {
		t.Fatal(err)
	}
	c.write(1, "meanwhile", others...)
	eventually(t, "step down", func() bool { return !old.sink.leader(1).Self })
	eventually(t, "failed read", func() bool { _, ok := old.sink.read(70); return ok })
	if r, _ := old.sink.read(70); !errors.Is(r.Err, ErrNotLeader) {
		t.Errorf("a leader without a quorum answered a read: %+v", r)
	}
	if slices.Contains(old.machine.data(1), "cut off") {
		t.Error("committed without a quorum")
	}
	c.net.isolate("")
	var leader *sharding.NotLeaderError
	eventually(t, "a named leader", func() bool {
		before := len(old.sink.drops())
		if old.sink.leader(1).Self || old.loop.Propose(1, term, 8, []byte("late")) != nil {
			return false
		}
		eventually(t, "drop", func() bool { return len(old.sink.drops()) > before })
		return errors.As(old.sink.drops()[before].Err, &leader) && leader.Leader != "" && leader.Leader != old.id
	})
	if data := c.converge(1); slices.Contains(data, "late") || !slices.Contains(data, "meanwhile") {
		t.Errorf("applied %v", data)
	}
	c.stop()
}

func TestReadIndexCoversEarlierCommits(t *testing.T) {
	c := newCluster(t)
	c.create([]sharding.ReplicaID{0, 1, 2}, 1)
	token := uint64(0)
	for i := range 30 {
		c.write(1, fmt.Sprint(i), 0, 1, 2)
		m, _ := c.leader(1, 0, 1, 2)
		committed := m.machine.index(1)
		if i%10 == 5 {
			to := c.nodes[(slices.Index(c.nodes, m)+1)%3]
			if err := m.loop.TransferLeader(1, replicaOf(1, slices.Index(c.nodes, to))); err != nil && !errors.Is(err, ErrNotLeader) {
				t.Fatal(err)
			}
		}
		for _, n := range c.nodes {
			token++
			if err := n.loop.ReadIndex(1, token); err != nil {
				t.Fatal(err)
			}
			eventually(t, "answer", func() bool { _, ok := n.sink.read(token); return ok })
			if r, _ := n.sink.read(token); r.Err == nil && r.Index < committed {
				t.Errorf("read at index %d after %d was committed", r.Index, committed)
			} else if r.Err != nil && !errors.Is(r.Err, ErrNotLeader) {
				t.Error(r.Err)
			}
		}
	}
	c.converge(1)
	c.stop()
}

func TestGroupGrowsFromOneToThreeMembers(t *testing.T) {
	c := newCluster(t)
	c.create([]sharding.ReplicaID{0}, 1)
	for i := range 5 {
		c.write(1, fmt.Sprint("one/", i), 0)
	}
	change := func(change Change, done func(Status) bool) {
		t.Helper()
		eventually(t, "change of members", func() bool {
			m, term := c.leader(1, 0, 1, 2)
			if s, err := m.loop.Status(1); err != nil || done(s) {
				return err == nil
			}
			m.loop.ChangeMembers(1, term, change)
			time.Sleep(5 * time.Millisecond)
			return false
		})
	}
	change(Change{AddLearners: []sharding.ReplicaID{11, 12}}, func(s Status) bool { return len(s.Learners) == 2 })
	eventually(t, "learners caught up", func() bool {
		s, err := c.nodes[0].loop.Status(1)
		return err == nil && s.Match[11] == s.Commit && s.Match[12] == s.Commit
	})
	change(Change{AddVoters: []sharding.ReplicaID{11, 12}}, func(s Status) bool { return len(s.Voters) == 3 && len(s.Outgoing) == 0 })
	c.write(1, "three", 0, 1, 2)
	for _, m := range c.nodes { // one node after the other, while the others serve
		others := slices.DeleteFunc([]int{0, 1, 2}, func(i int) bool { return c.nodes[i] == m })
		m.end(m.crash)
		c.write(1, "without "+string(m.id), others...)
		m.begin()
		eventually(t, "members after a restart", func() bool {
			s, err := m.loop.Status(1)
			return err == nil && len(s.Voters) == 3 && len(s.Outgoing) == 0
		})
	}
	// A leader that is to be removed first transfers its leadership, and its
	// successor removes it.
	m, _ := c.leader(1, 0, 1, 2)
	gone := slices.Index(c.nodes, m)
	heir := (gone + 1) % 3
	eventually(t, "the heir leads", func() bool {
		m.loop.TransferLeader(1, replicaOf(1, heir))
		time.Sleep(5 * time.Millisecond)
		return c.nodes[heir].sink.leader(1).Self
	})
	change(Change{Remove: []sharding.ReplicaID{replicaOf(1, gone)}}, func(s Status) bool { return len(s.Voters) == 2 })
	c.write(1, "two", slices.DeleteFunc([]int{0, 1, 2}, func(i int) bool { return i == gone })...)
	c.stop()
}

func TestCloseFailsWaitingReads(t *testing.T) {
	c := newCluster(t)
	c.create([]sharding.ReplicaID{0, 1, 2}, 1)
	c.write(1, "x", 0, 1, 2)
	m, _ := c.leader(1, 0, 1, 2)
	c.net.isolate(m.id)
	if err := m.loop.ReadIndex(1, 5); err != nil {
		t.Fatal(err)
	}
	sink := m.sink
	c.stop()
	// The read fails when the leader loses its quorum or when the loop is closed.
	if r, ok := sink.read(5); !ok || !errors.Is(r.Err, ErrStopped) && !errors.Is(r.Err, ErrNotLeader) {
		t.Errorf("the read was answered %v with %+v", ok, r)
	}
}

func TestMessagesToEarlierReplicasAreDropped(t *testing.T) {
	c := newCluster(t)
	c.create([]sharding.ReplicaID{0, 1, 2}, 1)
	c.write(1, "x", 0, 1, 2)
	m, term := c.leader(1, 0, 1, 2)
	s, err := m.loop.Status(1)
	if err != nil {
		t.Fatal(err)
	}
	from := uint64(replicaOf(1, (slices.Index(c.nodes, m)+1)%3))
	frame := func(to sharding.ReplicaID) []byte {
		return wire.EncodeFrame([]wire.Message{{Shard: 1, Raft: appResp(from, uint64(to), uint64(term)+5)}})
	}
	// A message to an earlier replica of this node has no effect. A message to
	// this replica ends its leadership, because the message has a higher term.
	if err := m.loop.Receive("", frame(99)); err != nil {
		t.Fatal(err)
	}
	if after, _ := m.loop.Status(1); after.Term != s.Term || !after.Self {
		t.Fatalf("a message to another replica was taken: %+v", after)
	}
	m.loop.Receive("", frame(s.Replica))
	eventually(t, "new term", func() bool { after, _ := m.loop.Status(1); return after.Term >= s.Term+5 })
	c.stop()
}

// TestLoopPutsIdleGroupsToSleep: the loop's own clock puts idle groups to
// sleep, and the counters show that they sleep.
func TestLoopPutsIdleGroupsToSleep(t *testing.T) {
	c := newCluster(t)
	c.create([]sharding.ReplicaID{0, 1, 2}, 1, 2, 3)
	for _, s := range []sharding.ShardID{1, 2, 3} {
		c.write(s, "x", 0, 1, 2)
	}
	total := func() (sum Stats) {
		for _, m := range c.nodes {
			s := m.loop.Stats()
			sum.Groups, sum.Awake, sum.Leading, sum.Peers = sum.Groups+s.Groups, sum.Awake+s.Awake, sum.Leading+s.Leading, sum.Peers+s.Peers
			sum.Proposals, sum.FramesSent = sum.Proposals+s.Proposals, sum.FramesSent+s.FramesSent
		}
		return sum
	}
	eventually(t, "sleep", func() bool { s := total(); return s.Awake == 0 && s.Leading == 3 })
	if s := total(); s.Groups != 9 || s.Peers != 6 || s.Proposals < 3 || s.FramesSent == 0 {
		t.Errorf("%+v", s)
	}
	for _, s := range []sharding.ShardID{1, 2, 3} {
		c.write(s, "y", 0, 1, 2)
	}
	eventually(t, "sleep again", func() bool { return total().Awake == 0 })
	c.stop()
}
