package forward

import (
	"context"
	"errors"
	"net/http"
	"testing"

	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/tests/support/rpctest"
)

// callerKey is the context key of the node that makes a call.
type callerKey struct{}

// byURL makes the server take the calling node from the client's base URL.
func byURL(o *ServerOptions) {
	o.Caller = func(ctx context.Context) sharding.NodeID {
		node, _ := ctx.Value(callerKey{}).(string)
		return sharding.NodeID(node)
	}
}

// by returns options with which a client calls the site as the given node.
func (s *site) by(node string) func(*Options) {
	return func(o *Options) {
		o.Peers = namedAs{o.Peers, node}
	}
}

// namedAs connects as a node.
type namedAs struct {
	connector
	node string
}

func (n namedAs) Client(to sharding.NodeID) (*http.Client, string, error) {
	client, base, err := n.connector.Client(to)
	return client, base + "/as/" + n.node, err
}

// mayLead knows the leaders, and a node that may lead the shard of an entity.
type mayLead struct {
	leaders
	leader *sharding.NodeID
	of     sharding.EntityID
}

func (m mayLead) MayLead(node sharding.NodeID, shard sharding.ShardID) bool {
	return node == *m.leader && shard == sharding.ShardOf(m.of, testShards)
}

// A node may deliver messages only of shards that it may lead. Its other
// requests are not restricted.
func TestDeliveriesNeedLeadershipOfTheirShard(t *testing.T) {
	w := rpctest.New()
	defer w.Close()
	source := sharding.EntityID{Type: rpctest.Counter, ID: "source"}
	var leader sharding.NodeID
	n2 := newSite(t, "n2", w, newLeads("n2"), byURL, func(o *ServerOptions) {
		o.Leaders = mayLead{o.Leaders, &leader, source}
	})
	to := toNode{newTestClient(t, newNetwork(t, n2), n2.by("n3")), "n2"}
	deliver := func() error {
		q := command("a", "add", amount(3))
		q.Kind, q.Delivery = request.Deliver, &request.Delivery{Source: source, Number: 1}
		run(t, to, q)
		return q.Result.Err
	}
	for _, leader = range []sharding.NodeID{"", "n1"} {
		if err := deliver(); !errors.Is(err, request.ErrNotReady) {
			t.Errorf("a message of a shard that %q leads: %v", leader, err)
		}
	}
	add := command("a", "add", amount(4))
	if run(t, to, add); add.Result.Err != nil || w.Total("a") != 4 {
		t.Errorf("a command: %v, total %d", add.Result.Err, w.Total("a"))
	}
	leader = "n3"
	if err := deliver(); errors.Is(err, request.ErrNotReady) {
		t.Errorf("a message of a shard that it leads: %v", err)
	}
}

// If a node's streams have the same names as another node's streams, neither
// node ends the streams of the other.
func TestStreamNamesAreSeparatedByNode(t *testing.T) {
	w := rpctest.New()
	defer w.Close()
	n2 := newSite(t, "n2", w, newLeads("n2"), byURL)
	net := newNetwork(t, n2)
	for _, node := range []string{"n1", "n3"} {
		q := command("a", "add", amount(1))
		if run(t, toNode{newTestClient(t, net, n2.by(node)), "n2"}, q); q.Result.Err != nil {
			t.Fatal(q.Result.Err)
		}
	}
	n2.server.mu.Lock()
	defer n2.server.mu.Unlock()
	if len(n2.server.streams) != 2 || len(n2.server.open) != 2 {
		t.Errorf("%d streams of %d names are open", len(n2.server.open), len(n2.server.streams))
	}
}
