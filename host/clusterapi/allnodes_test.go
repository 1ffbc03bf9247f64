package clusterapi

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/api/gen/hostd/cluster/v1/clusterv1connect"
	"github.com/hostd/hostd/host/edge/leaderproxy"
	"github.com/hostd/hostd/sharding"
)

// patience is longer than any expected event takes on any machine.
const patience = time.Minute

// fleet has nodes whose addresses are known but that do not answer.
type fleet struct{}

func (fleet) Leader(sharding.ShardID) (sharding.NodeID, bool, bool) { return "", false, false }
func (fleet) Quorum(sharding.ShardID) bool                          { return true }
func (fleet) Missing(sharding.ShardID) sharding.Missing             { return sharding.Missing{} }
func (fleet) Hears(sharding.NodeID) bool                            { return true }
func (fleet) Changed() <-chan struct{}                              { return nil }
func (fleet) Client(sharding.NodeID) (*http.Client, string, error) {
	return http.DefaultClient, "http://127.0.0.1:1", nil
}

// TestNodesThatLeaveAreReported: nodes that have left are reported after their
// last message, and asked again when they are back.
func TestNodesThatLeaveAreReported(t *testing.T) {
	var members atomic.Pointer[[]sharding.NodeID]
	of := func(all ...sharding.NodeID) { members.Store(&all) }
	of("n1", "n2", "n3")
	var asking sync.Map // the nodes that are being asked
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	r := &running[string]{messages: make(chan *string), streamCall: &streamCall[string]{
		allNodes:  &allNodes{Self: "n1", Proxy: leaderproxy.New(fleet{}), Nodes: storedMembers{&members}},
		Continues: true,
		There: func(ctx context.Context, _ clusterv1connect.ClusterServiceClient) (*connect.ServerStreamForClient[string], error) {
			asking.Store(ctx, true)
			defer asking.Delete(ctx)
			return nil, errors.New("no answer")
		},
		Missing: func(node string) *string { m := node + " is missing"; return &m },
		Left:    func(node string) *string { m := node + " has left"; return &m },
	}}
	r.all.Go(func() { r.others(ctx) })
	defer func() { cancel(); r.all.Wait() }()
	reported := func(want ...string) {
		t.Helper()
		for left := len(want); left > 0; left-- {
			select {
			case m := <-r.messages:
				if *m != want[0] && *m != want[len(want)-1] {
					t.Fatalf("%s, want %q", *m, want)
				}
			case <-ctx.Done():
				t.Fatalf("no message about node %q", want)
			}
		}
	}
	reported("n2 is missing", "n3 is missing")
	of() // an empty list of members must not mean that all have left
	time.Sleep(memberPause + memberPause/2)
	of("n1", "n2")
	reported("n3 has left")
	of("n1", "n2", "n3")
	reported("n3 is missing")
	of("n1")
	reported("n2 has left", "n3 has left")
	asking.Range(func(ctx, _ any) bool {
		t.Error("a node that has left is asked")
		return false
	})
}

// storedMembers lists the stored nodes, and fails if there are none.
type storedMembers struct {
	*atomic.Pointer[[]sharding.NodeID]
}

func (m storedMembers) Members(context.Context) ([]sharding.NodeID, error) {
	if all := *m.Load(); len(all) > 0 {
		return all, nil
	}
	return nil, errors.New("the members are unknown")
}
