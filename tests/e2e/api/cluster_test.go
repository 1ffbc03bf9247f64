package api

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/api/client"
	clusterv1 "github.com/hostd/hostd/api/gen/hostd/cluster/v1"
	"github.com/hostd/hostd/api/gen/hostd/cluster/v1/clusterv1connect"
	"github.com/hostd/hostd/tests/support/testkit"
)

// clusterOf returns a client of a node's ClusterService.
func clusterOf(n *testkit.Node) clusterv1connect.ClusterServiceClient {
	return clusterv1connect.NewClusterServiceClient(http.DefaultClient, n.API())
}

// postJSON makes a call like curl and decodes the response.
func postJSON(t *testing.T, n *testkit.Node, procedure, body string, out any) int {
	t.Helper()
	res, err := http.Post(n.API()+procedure, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, out); err != nil {
		t.Fatalf("%s: %v in %s", procedure, err, text)
	}
	return res.StatusCode
}

// answerJSON is a response of Send or Query over plain HTTP, or an error.
type answerJSON struct {
	JSON      struct{ Total int } `json:"json"`
	Sequence  string              `json:"sequence"`
	Duplicate bool                `json:"duplicate"`
	NodeID    string              `json:"nodeId"`
	Code      string              `json:"code"`
	Message   string              `json:"message"`
}

// Any node accepts any command. The entity runs where its shard is led, and
// every node reports the same state.
func TestAnyNodeAcceptsAnyCommand(t *testing.T) {
	t.Parallel()
	c := testkit.StartCluster(t, 3, testkit.ClusterOptions{})
	c.Push("counter")
	ran := map[string]bool{}
	for i := range 12 {
		id := fmt.Sprintf("entity-%d", i)
		var nodes []string
		for k, n := range c.Nodes() {
			var sent answerJSON
			status := postJSON(t, n, "/hostd.entity.v1.EntityService/SendCommand", fmt.Sprintf(
				`{"entityType":"counter","entityId":%q,"command":"add","json":{"amount":1},"commandId":"%s-%d"}`, id, id, k), &sent)
			if status != http.StatusOK || sent.JSON.Total != k+1 || sent.Sequence != fmt.Sprint(k+1) || sent.Duplicate {
				t.Fatalf("%s at %s: %d %+v", id, n.ID(), status, sent)
			}
			nodes = append(nodes, sent.NodeID)
		}
		for _, n := range c.Nodes() {
			var again, query answerJSON
			postJSON(t, n, "/hostd.entity.v1.EntityService/SendCommand", fmt.Sprintf(
				`{"entityType":"counter","entityId":%q,"command":"add","json":{"amount":1},"commandId":"%s-0"}`, id, id), &again)
			if again.JSON.Total != 1 || !again.Duplicate {
				t.Errorf("%s again at %s: %+v", id, n.ID(), again)
			}
			postJSON(t, n, "/hostd.entity.v1.EntityService/QueryEntity", fmt.Sprintf(`{"entityType":"counter","entityId":%q,"query":"total"}`, id), &query)
			if query.JSON.Total != 3 {
				t.Errorf("%s asked at %s: %+v", id, n.ID(), query)
			}
		}
		if len(slices.Compact(slices.Clone(nodes))) != 1 {
			t.Errorf("%s ran at %v, with no change of leader", id, nodes)
		}
		ran[nodes[0]] = true
	}
	if len(ran) < 2 {
		t.Errorf("12 entities of 3 shards ran at %v", ran)
	}
	for _, n := range c.Nodes() {
		var absent answerJSON
		if postJSON(t, n, "/hostd.entity.v1.EntityService/SendCommand", `{"entityType":"nothing","entityId":"a","command":"add"}`, &absent); absent.Code != "not_found" {
			t.Errorf("%s: an unknown type: %+v", n.ID(), absent)
		}
	}
}

// Every node describes the whole cluster, and all descriptions agree.
func TestEveryNodeDescribesTheCluster(t *testing.T) {
	t.Parallel()
	c := testkit.StartCluster(t, 3, testkit.ClusterOptions{Shards: 6})
	for i, n := range c.Nodes() {
		c.Await(n.ID()+" describes the cluster", func() bool {
			o := c.Overview(i)
			if len(o.GetMembers()) != 3 || !o.GetQuorum() || o.GetCoordinator() == "" || o.GetNodeId() != n.ID() || o.GetShardCount() != 6 {
				return false
			}
			leads := uint32(0)
			for k, m := range o.GetMembers() {
				if m.GetNodeId() != fmt.Sprintf("n%d", k+1) || m.GetStatus() != "up" || !m.GetReachable() || m.GetReplicaCount() < 6 ||
					"http://"+m.GetAddress() != c.Node(k).API() || !slices.Equal(m.GetRoles(), []string{"host"}) || m.GetVersion() == "" {
					return false
				}
				leads += m.GetLeaderCount()
			}
			return leads >= 6
		})
		shards := c.Shards(i)
		if len(shards) != 7 {
			t.Fatalf("%s lists %d shards, want 6 and that of the metadata", n.ID(), len(shards))
		}
		for k, s := range shards {
			if s.GetShardId() != uint32(k) || s.GetLeader() == "" || s.GetTerm() == 0 || k > 0 && len(s.GetVoters()) != 3 {
				t.Errorf("%s lists %v", n.ID(), s)
			}
		}
	}
}

// A setting written through one node can be read on every node, from its own
// copy.
func TestSettingIsReadableOnEveryNode(t *testing.T) {
	t.Parallel()
	c := testkit.StartCluster(t, 3, testkit.ClusterOptions{Shards: 1, NodeFlags: map[int][]string{2: {"--admin", "read-only"}}})
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	watch, err := clusterOf(c.Node(2)).WatchSettings(ctx, connect.NewRequest(&clusterv1.WatchSettingsRequest{KeyPrefix: "color."}))
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Close()
	seen := func(want string) {
		t.Helper()
		if !watch.Receive() {
			t.Fatal(watch.Err())
		}
		s := watch.Msg().GetSetting()
		if got := fmt.Sprintf("%s=%s", s.GetKey(), s.GetValue()); got != want || s.GetRevision() == 0 {
			t.Fatalf("got %s at revision %d, want %s", got, s.GetRevision(), want)
		}
	}
	first, err := c.Node(0).Client(client.Options{}).PutSetting(ctx, "color.sky", "blue")
	if err != nil {
		t.Fatal(err)
	}
	seen("color.sky=blue")
	second, err := c.Node(1).Client(client.Options{}).PutSetting(ctx, "color.sky", "grey")
	if err != nil || second <= first {
		t.Fatalf("revisions %d, %d, %v", first, second, err)
	}
	seen("color.sky=grey")
	for i, n := range c.Nodes() {
		cl := n.Client(client.Options{})
		c.Await(n.ID()+" has the setting", func() bool {
			s, err := cl.Setting(ctx, "color.sky")
			return err == nil && s.GetValue() == "grey" && s.GetRevision() == second
		})
		if _, err := cl.Setting(ctx, "color.sea"); !client.IsNotFound(err) {
			t.Errorf("%s: a setting that is not there: %v", n.ID(), err)
		}
		if i == 2 {
			if _, err := cl.PutSetting(ctx, "a", "b"); client.CodeOf(err) != connect.CodePermissionDenied || !strings.Contains(err.Error(), "admin: full") {
				t.Errorf("a node with admin: read-only: %v", err)
			}
		}
	}
	for key, value := range map[string]string{"entity.cart.passivate-after": "soon", "entity.cart.passivate-afterwards": "1m", "entity.Cart.passivate-after": "1m"} {
		if _, err := c.Node(0).Client(client.Options{}).PutSetting(ctx, key, value); client.CodeOf(err) != connect.CodeInvalidArgument {
			t.Errorf("%s set to %q: %v", key, value, err)
		}
	}
	if _, err := c.Node(0).Client(client.Options{}).PutSetting(ctx, "color.sky", ""); err != nil {
		t.Fatal(err)
	}
	seen("color.sky=")
	c.Restart(1)
	if _, err := c.Node(1).Client(client.Options{}).Setting(ctx, "color.sky"); !client.IsNotFound(err) {
		t.Errorf("removed, after a restart: %v", err)
	}
}

// leads returns how many data shards a node leads according to another node.
func leads(c *testkit.Cluster, node int, id string) int {
	n := 0
	for _, s := range c.Shards(node) {
		if s.GetShardId() != 0 && s.GetLeader() == id {
			n++
		}
	}
	return n
}
