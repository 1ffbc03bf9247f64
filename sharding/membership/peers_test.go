package membership

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/hostd/hostd/sharding"
)

func node(a nodeMeta) *memberlist.Node {
	return &memberlist.Node{Name: a.name(), Addr: net.IPv4(10, 0, 0, 1), Port: 7070, Meta: a.encode()}
}

func TestPeersTrackLatestIncarnation(t *testing.T) {
	p := newPeers("self", "c", func(sharding.NodeID) uint64 { return 1 << 40 })
	at := func(incarnation uint64, leaving bool) *memberlist.Node {
		return node(nodeMeta{node: "n", incarnation: incarnation, address: "h:1", cluster: "c", leaving: leaving})
	}
	expect := func(what, want string, changes bool, event func()) {
		t.Helper()
		before := p.changes()
		event()
		got := ""
		for _, s := range p.list() {
			got += fmt.Sprintf("%s.%d %v %v", s.ID, s.Incarnation, s.Reachable, s.Left)
		}
		if got != want {
			t.Errorf("%s: %q, wanted %q", what, got, want)
		}
		if told := before != p.changes(); told != changes {
			t.Errorf("%s: told %v", what, told)
		}
	}
	expect("an unknown node is gone", "", false, func() { p.NotifyLeave(at(1, false)) })
	expect("it joins", "n.1 true false", true, func() { p.NotifyJoin(at(1, false)) })
	expect("nothing new", "n.1 true false", false, func() { p.NotifyUpdate(at(1, false)) })
	expect("it starts anew", "n.2 true false", true, func() { p.NotifyJoin(at(2, false)) })
	expect("the older start dies", "n.2 true false", false, func() { p.NotifyLeave(at(1, false)) })
	expect("the older start joins", "n.2 true false", false, func() { p.NotifyJoin(at(1, false)) })
	expect("it dies", "n.2 false false", true, func() { p.NotifyLeave(at(2, false)) })
	expect("it is back", "n.2 true false", true, func() { p.NotifyJoin(at(2, false)) })
	expect("it is about to leave", "n.2 true false", true, func() { p.NotifyUpdate(at(2, true)) })
	expect("it left", "n.2 false true", true, func() { p.NotifyLeave(at(2, true)) })
	expect("this node itself", "n.2 false true", false, func() {
		p.NotifyJoin(node(nodeMeta{node: "self", incarnation: 9, address: "h:1"}))
	})
	if at := p.list()[0]; at.Address != "h:1" || at.Gossip != "10.0.0.1:7070" {
		t.Errorf("the node is at %q, gossip to it goes to %q", at.Address, at.Gossip)
	}
	if lost, names, _ := p.missing(); len(lost)+len(names) != 0 {
		t.Errorf("a node that left is looked for at %v %v", lost, names)
	}
}

func TestForeignNodesAreRejected(t *testing.T) {
	p := newPeers("self", "c", func(sharding.NodeID) uint64 { return 1 << 40 })
	for _, c := range []struct {
		what string
		node *memberlist.Node
		ok   bool
	}{
		{"a member", node(nodeMeta{node: "n", incarnation: 1, address: "h:1", cluster: "c"}), true},
		{"a node of no cluster", node(nodeMeta{node: "n", incarnation: 1, address: "h:1"}), true},
		{"another cluster", node(nodeMeta{node: "n", incarnation: 1, address: "h:1", cluster: "d"}), false},
		{"the last start that there can be", node(nodeMeta{node: "n", incarnation: 1 << 40, address: "h:1"}), true},
		{"a start in the future", node(nodeMeta{node: "n", incarnation: 1<<40 + 1, address: "h:1"}), false},
		{"this node, whatever its start", node(nodeMeta{node: "self", incarnation: 1<<40 + 1, address: "h:1"}), true},
		{"no meta data", &memberlist.Node{Name: "n#1"}, false},
		{"another name", &memberlist.Node{Name: "m#1", Meta: node(nodeMeta{node: "n", incarnation: 1, address: "h:1"}).Meta}, false},
	} {
		if err := p.NotifyAlive(c.node); (err == nil) != c.ok {
			t.Errorf("%s: %v", c.what, err)
		}
	}
}

// The number of peers is limited, and reachable peers stay.
func TestPeersAreLimited(t *testing.T) {
	p := newPeers("self", "c", func(sharding.NodeID) uint64 { return 1 << 40 })
	name := func(i int) *memberlist.Node {
		return node(nodeMeta{node: sharding.NodeID(fmt.Sprint("n", i)), incarnation: 1, address: "h:1"})
	}
	for i := range maxPeers {
		p.NotifyJoin(name(i))
	}
	p.NotifyJoin(name(maxPeers))
	if got := len(p.list()); got != maxPeers {
		t.Errorf("%d peers", got)
	}
	p.NotifyLeave(name(5))
	p.NotifyJoin(name(maxPeers))
	list := p.list()
	has := func(i int) bool {
		return slices.ContainsFunc(list, func(s Peer) bool { return s.ID == sharding.NodeID(fmt.Sprint("n", i)) })
	}
	if len(list) != maxPeers || has(5) || !has(maxPeers) {
		t.Errorf("%d peers, the lost one is there: %v, the new one: %v", len(list), has(5), has(maxPeers))
	}
}

func TestPick(t *testing.T) {
	var targets []string
	for i := range 20 {
		targets = append(targets, fmt.Sprint(i))
	}
	seen := map[string]int{}
	for round := range 20 {
		picked := pick(targets, round)
		if len(picked) != maxJoins {
			t.Fatalf("round %d: %v", round, picked)
		}
		for _, p := range picked {
			seen[p]++
		}
	}
	for _, target := range targets {
		if seen[target] != 8 {
			t.Errorf("%s was tried %d times in 20 rounds", target, seen[target])
		}
	}
	if got := pick(targets[:3], 7); len(got) != 3 {
		t.Errorf("of three: %v", got)
	}
}

// Anyone who can send gossip can forge nodes, and memberlist keeps all nodes
// that it is allowed to keep. Known nodes stay, and there is room again after
// other nodes have been gone for a while.
func TestForgedNodesAreLimited(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	p := newPeers("self", "", func(sharding.NodeID) uint64 { return 1 << 62 })
	p.now = func() time.Time { return now }
	node := func(i int) *memberlist.Node {
		a := nodeMeta{node: sharding.NodeID(fmt.Sprint("n", i%100)), incarnation: uint64(i + 1), address: "127.0.0.1:1"}
		return &memberlist.Node{Name: a.name(), Meta: a.encode()}
	}
	for i := range maxNames {
		if err := p.NotifyAlive(node(i)); err != nil {
			t.Fatal(i, err)
		}
		p.NotifyJoin(node(i))
	}
	if err := p.NotifyAlive(node(maxNames)); !errors.Is(err, errCrowded) {
		t.Errorf("one more: %v", err)
	}
	if err := p.NotifyAlive(node(7)); err != nil {
		t.Errorf("a known one: %v", err)
	}
	p.NotifyLeave(node(3))
	if err := p.NotifyAlive(node(maxNames)); !errors.Is(err, errCrowded) {
		t.Errorf("memberlist still keeps the one that has left: %v", err)
	}
	now = now.Add(nameAge + time.Second)
	if err := p.NotifyAlive(node(maxNames)); err != nil {
		t.Errorf("after one has gone: %v", err)
	}
	if err := p.NotifyAlive(node(maxNames + 1)); !errors.Is(err, errCrowded) {
		t.Errorf("two for one: %v", err)
	}
}
