package raftgroup

import (
	"testing"

	"github.com/hostd/hostd/sharding"
)

// gone reports to the given nodes that the process of another node has failed.
func (d *drill) gone(node int, told ...int) {
	for _, i := range told {
		d.nodes[i].driver.Core().PeerFailed(d.name(node))
	}
}

// ledBy creates a drill of three nodes whose first node leads all groups.
func ledBy(t *testing.T, shards int) *drill {
	d := newDrill(t, 3, shards)
	d.until("leaders", 60, func() bool { return d.led(shards) })
	for s := 1; s <= shards; s++ {
		d.lead(s, 0)
	}
	d.until("the clocks stand still", 60, func() bool {
		for _, n := range d.nodes {
			if len(n.driver.core.clocks.ticking) > 0 {
				return false
			}
		}
		return true
	})
	return d
}

func (d *drill) campaigns() (n uint64) {
	for _, o := range d.nodes {
		n += o.driver.core.stats.Campaigns
	}
	return n
}

// TestElectionsStartAtOnceAfterProcessFailure: all groups of the failed node
// have new leaders before any clock ticks, and every campaign succeeds.
func TestElectionsStartAtOnceAfterProcessFailure(t *testing.T) {
	const shards = 90
	d := ledBy(t, shards)
	before := d.campaigns()
	d.nodes[0].up = false
	d.gone(0, 1, 2)
	d.settle()
	if !d.led(shards) {
		t.Error("not all groups have a leader before a clock beats")
	}
	if n := d.campaigns() - before; n != shards {
		t.Errorf("%d campaigns for %d groups", n, shards)
	}
	share := make([]int, 3)
	for s := 1; s <= shards; s++ {
		share[d.leader(s).i]++
		d.write(s, "after", 1, 2)
	}
	if share[1] != share[2] {
		t.Errorf("leaders by node: %v", share)
	}
}

// TestElectionsAfterProcessFailureAreBounded: the number of immediate campaigns
// has the same bound as in any tick.
func TestElectionsAfterProcessFailureAreBounded(t *testing.T) {
	const shards, most = 60, 4
	d := ledBy(t, shards)
	for _, n := range d.nodes {
		n.driver.core.opts.MaxCampaigns = most
	}
	d.beat()
	d.nodes[0].up = false
	for first := true; !d.led(shards); first = false {
		before := d.campaigns()
		if first {
			d.gone(0, 1, 2)
			d.settle()
		} else {
			d.beat()
		}
		if n := d.campaigns() - before; n > 2*most {
			t.Fatalf("%d campaigns of two nodes at once", n)
		}
		if d.beats > 500 {
			t.Fatal("no leaders")
		}
	}
}

// TestRejectedCandidateRetriesAtNextTick: voters that have not noticed the failure
// reject the candidate, which retries at the next tick.
func TestRejectedCandidateRetriesAtNextTick(t *testing.T) {
	const shards = 20
	d := ledBy(t, shards)
	d.nodes[0].up = false
	d.gone(0, 1)
	d.settle()
	d.gone(0, 2)
	d.settle()
	beats := d.until("leaders", 2, func() bool { return d.led(shards) })
	t.Logf("led after %d beats", beats)
}

// TestReplicaWithNewestLogIsElected: the first voter in turn cannot win because
// it lacks entries of another voter, which campaigns as soon as it sees the
// vote request.
func TestReplicaWithNewestLogIsElected(t *testing.T) {
	const shards = 20
	d := ledBy(t, shards)
	d.cut[[2]int{0, 1}] = true
	for s := 1; s <= shards; s++ {
		d.write(s, "for two", 0) // node 2 has the entry in its log and learns of the commit later
	}
	d.nodes[0].up = false
	d.gone(0, 1, 2)
	d.settle()
	for s := 1; s <= shards; s++ {
		if d.leader(s) != d.nodes[2] {
			t.Fatalf("shard %d is not led where its log is furthest, before a clock beats", s)
		}
		d.write(s, "after", 1, 2)
	}
}

// TestWrongFailureHintChangesNothing: the node lives, and the nodes that got
// the hint follow it again.
func TestWrongFailureHintChangesNothing(t *testing.T) {
	const shards = 20
	d := ledBy(t, shards)
	term := func(s int) any { return d.nodes[0].sink.leader(sharding.ShardID(s)).Term }
	var terms []any
	for s := 1; s <= shards; s++ {
		terms = append(terms, term(s))
	}
	d.gone(0, 1)
	d.settle()
	for range 30 {
		d.beat() // the node is seen alive
	}
	for s := 1; s <= shards; s++ {
		if d.leader(s) != d.nodes[0] || term(s) != terms[s-1] {
			t.Fatalf("shard %d: another leader, or term %v after %v", s, term(s), terms[s-1])
		}
		d.write(s, "after", 0, 1, 2)
	}
}

// TestWrongFailureHintsLoseNoEntries: the other nodes elect a new leader, the
// old leader follows it, and no entry is lost.
func TestWrongFailureHintsLoseNoEntries(t *testing.T) {
	const shards = 20
	d := ledBy(t, shards)
	for s := 1; s <= shards; s++ {
		d.write(s, "before", 0, 1, 2)
	}
	for range 5 {
		d.gone(0, 1, 2)
		d.settle()
		d.beat()
	}
	for range 30 {
		d.beat()
	}
	for s := 1; s <= shards; s++ {
		d.write(s, "after", 0, 1, 2)
		for i, n := range d.nodes {
			if all := n.machine.data(sharding.ShardID(s)); len(all) != 2 || all[0] != "before" {
				t.Fatalf("node %d has %q of shard %d", i, all, s)
			}
		}
	}
}

// TestTransferToFailedNodeIsAborted: while leaderships are being transferred to
// a node, proposals wait. Once the node is known to have failed or is
// suspected, the proposals proceed without waiting for a tick, and no
// leadership is transferred to the node afterwards.
func TestTransferToFailedNodeIsAborted(t *testing.T) {
	const shards = 12
	for name, tell := range map[string]func(*Core, sharding.NodeID){"ended": (*Core).PeerFailed, "silent": (*Core).PeerSuspected} {
		t.Run(name, func(t *testing.T) {
			d := ledBy(t, shards)
			core := d.nodes[0].driver.Core()
			hand := func(s int) {
				t.Helper()
				if err := core.TransferLeader(sharding.ShardID(s), d.replica(s, 1)); err != nil {
					t.Fatal(err)
				}
			}
			d.nodes[1].up = false // the other nodes have not noticed yet
			for s := 1; s <= shards; s++ {
				hand(s)
				d.propose(s, "meanwhile")
			}
			d.settle()
			if n := d.applied(shards, "meanwhile", 0, 2); n != 0 {
				t.Fatalf("%d groups that are being handed over have applied what came meanwhile", n)
			}
			tell(core, d.name(1))
			d.settle()
			if n := d.applied(shards, "meanwhile", 0); n != shards {
				t.Fatalf("%d of %d groups go on before a clock beats", n, shards)
			}
			for s := 1; s <= shards; s++ {
				hand(s)
				d.propose(s, "after")
			}
			d.settle()
			if n := d.applied(shards, "after", 0); n != shards {
				t.Errorf("%d of %d groups go on that were to be handed over to it again", n, shards)
			}
		})
	}
}

// TestTransfereeCampaignsAfterWrongFailureHint: the transferee was asked before its leader got
// a failure hint. Whichever replica wins leads in a later term, and no entry is
// duplicated.
func TestTransfereeCampaignsAfterWrongFailureHint(t *testing.T) {
	d := ledBy(t, 1)
	d.write(1, "before", 0, 1, 2)
	core, term := d.nodes[0].driver.Core(), d.nodes[0].sink.leader(1).Term
	if err := core.TransferLeader(1, d.replica(1, 1)); err != nil {
		t.Fatal(err)
	}
	if err := d.nodes[0].driver.Turn(); err != nil { // the transfer request leaves
		t.Fatal(err)
	}
	core.PeerFailed(d.name(1))
	d.propose(1, "meanwhile")
	d.settle()
	d.until("one leader", 60, func() bool { return d.leader(1) != nil })
	if l := d.leader(1); l.sink.leader(1).Term <= term {
		t.Errorf("node %d leads, in term %d after %d", l.i, l.sink.leader(1).Term, term)
	}
	d.write(1, "after", 0, 1, 2)
	for i, n := range d.nodes {
		all := n.machine.data(1)
		if len(all) < 2 || len(all) > 3 || all[0] != "before" || all[len(all)-1] != "after" {
			t.Errorf("node %d has %q", i, all)
		}
	}
}

// propose proposes data to the leader of a shard, node 0.
func (d *drill) propose(shard int, data string) {
	d.t.Helper()
	s, n := sharding.ShardID(shard), d.nodes[0]
	if err := n.driver.Core().Propose(s, n.sink.leader(s).Term, 1, []byte(data)); err != nil {
		d.t.Fatal(err)
	}
}

// applied counts the shards whose data is applied on one of the nodes.
func (d *drill) applied(shards int, data string, on ...int) (count int) {
	for s := 1; s <= shards; s++ {
		for _, i := range on {
			if all := d.nodes[i].machine.data(sharding.ShardID(s)); len(all) > 0 && all[len(all)-1] == data {
				count++
				break
			}
		}
	}
	return count
}
