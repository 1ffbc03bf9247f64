package edge_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"

	clusterv1 "github.com/hostd/hostd/api/gen/hostd/cluster/v1"
	"github.com/hostd/hostd/api/gen/hostd/cluster/v1/clusterv1connect"
	"github.com/hostd/hostd/host/edge"
	"github.com/hostd/hostd/host/edge/leaderproxy"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/host/services"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/tests/support/rpctest"
)

func (s *site) cluster() clusterv1connect.ClusterServiceClient {
	return clusterv1connect.NewClusterServiceClient(s.h2, s.url)
}

func TestCluster(t *testing.T) {
	s := serve(t, edge.Options{})
	_, body := s.post(t, clusterPath+"GetCluster", `{}`)
	node := func(n, leads int) string {
		return fmt.Sprintf(`{"nodeId":"n%d","address":"127.0.0.1:%d","status":"up","reachable":true,"roles":["host"],"leaderCount":%d,"replicaCount":4,"version":"test"}`, n, n, leads)
	}
	wantJSON(t, body, `{"members":[`+node(1, 2)+`,`+node(2, 1)+`,`+node(3, 1)+`],"coordinator":"n1","quorum":true,"nodeId":"n1","shardCount":4,"policy":{"replication":3,"minMembers":1,"rebalance":true,"deadAfter":"300s"}}`)
	_, body = s.post(t, clusterPath+"ListShards", `{}`)
	shard := func(n int, leader string) string {
		return fmt.Sprintf(`{"shardId":%d,"leader":%q,"term":"2","voters":["n1","n2","n3"],"appliedIndex":"9"}`, n, leader)
	}
	wantJSON(t, body, `{"shards":[`+shard(1, "n1")+`,`+shard(2, "n2")+`,`+shard(3, "n3")+`,`+shard(4, "n1")+`]}`)
}

// adminRows has, for every rpc of the ClusterService, a valid request and
// whether the rpc changes something.
var adminRows = map[string]struct {
	changes bool
	body    string
}{
	"GetCluster":        {false, `{}`},
	"ListShards":        {false, `{}`},
	"WatchCluster":      {false, ""},
	"WatchShards":       {false, ""},
	"WatchStats":        {false, ""},
	"TailLogs":          {false, ""},
	"ProfileNode":       {true, ""},
	"ProfileGuests":     {false, ""},
	"MoveShard":         {true, `{"shardId":1,"toNode":"n1"}`},
	"DrainNode":         {true, `{"nodeId":"n3"}`},
	"ResumeNode":        {true, `{"nodeId":"n3"}`},
	"RemoveNode":        {true, `{"nodeId":"n2"}`},
	"DownNode":          {true, `{"nodeId":"n3"}`},
	"RebalanceShards":   {true, `{}`},
	"FinalizeUpgrade":   {true, `{"clusterVersion":1}`},
	"InitializeCluster": {true, `{}`},
	"SetPolicy":         {true, `{"replication":5}`},
	"PutSetting":        {true, `{"key":"a","value":"b"}`},
	"GetSetting":        {false, `{"key":"a"}`},
	"ListSettings":      {false, `{}`},
	"WatchSettings":     {false, ""},

	"ListRoles":         {false, `{}`},
	"PutRole":           {true, `{"roleName":"clerk","rules":[{"effect":"allow","verbs":["invoke"]}]}`},
	"DeleteRole":        {true, `{"roleName":"other"}`},
	"ListRoleBindings":  {false, `{}`},
	"PutRoleBinding":    {true, `{"subject":"token:ci","roles":["viewer"]}`},
	"DeleteRoleBinding": {true, `{"subject":"token:ci"}`},
	"ListTokens":        {false, `{}`},
	"CreateToken":       {true, `{"tokenName":"ci","tokenSha256":"YWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWE=","roles":["viewer"]}`},
	"DeleteToken":       {true, `{"tokenName":"ci"}`},
	"CheckAccess":       {false, `{"verb":"invoke"}`},
}

// TestAdmin checks that a caller that may not change the cluster cannot do so by
// any rpc. A new rpc needs a row.
func TestAdmin(t *testing.T) {
	service := clusterv1.File_hostd_cluster_v1_cluster_proto.Services().Get(0)
	if service.Methods().Len() != len(adminRows) {
		t.Errorf("the service has %d rpcs, the table %d rows", service.Methods().Len(), len(adminRows))
	}
	for _, admin := range []bool{false, true} {
		s := serve(t, edge.Options{Admin: admin})
		stepping(t, s)
		for i := range service.Methods().Len() {
			method := service.Methods().Get(i)
			row, ok := adminRows[string(method.Name())]
			if !ok {
				t.Errorf("%s has no row", method.Name())
				continue
			}
			reads := method.Options().(*descriptorpb.MethodOptions).GetIdempotencyLevel() == descriptorpb.MethodOptions_NO_SIDE_EFFECTS
			if reads == row.changes {
				t.Errorf("%s: the proto says that it only reads: %v, the table that it changes: %v", method.Name(), reads, row.changes)
			}
			if method.IsStreamingServer() {
				continue // each has its own test
			}
			status, body := s.post(t, clusterPath+string(method.Name()), row.body)
			if row.changes && !admin {
				wantCode(t, body, connect.CodePermissionDenied)
				if !strings.Contains(body, "'admin: full'") {
					t.Errorf("%s: the next step is missing: %s", method.Name(), body)
				}
			} else if strings.Contains(body, "permission_denied") || status == 501 {
				t.Errorf("%s with admin=%v: %d %s", method.Name(), admin, status, body)
			}
		}
		o, _ := s.world.Nodes.Overview(t.Context())
		if changed := o.Members[len(o.Members)-1].Status == "down" && len(o.Members) == 2; changed != admin {
			t.Errorf("with admin=%v: %+v", admin, o.Members)
		}
	}
}

// stepping makes the coordinator carry out operations until the test ends.
func stepping(t *testing.T, s *site) {
	t.Helper()
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
				s.world.Nodes.Step()
			}
		}
	}()
	t.Cleanup(func() {
		close(stop)
		<-done
	})
}

// An operation returns when it has taken effect.
func TestOrders(t *testing.T) {
	s := serve(t, edge.Options{Admin: true})
	stepping(t, s)
	if _, err := s.cluster().MoveShard(t.Context(), connect.NewRequest(&clusterv1.MoveShardRequest{ShardId: 2, ToNode: "n3"})); err != nil {
		t.Fatal(err)
	}
	if shards, _ := s.world.Nodes.Shards(t.Context()); shards[1].Leader != "n3" {
		t.Errorf("shard 2 is led by %s", shards[1].Leader)
	}
	drained, err := s.cluster().DrainNode(t.Context(), connect.NewRequest(&clusterv1.DrainNodeRequest{NodeId: "n3"}))
	if err != nil || drained.Msg.GetMoved() != 2 {
		t.Fatal(drained, err)
	}
	if o, _ := s.world.Nodes.Overview(t.Context()); o.Members[2].Leaders != 0 || o.Members[2].Status != "draining" {
		t.Errorf("after the drain: %+v", o.Members[2])
	}
	if _, err := s.cluster().ResumeNode(t.Context(), connect.NewRequest(&clusterv1.ResumeNodeRequest{NodeId: "n3"})); err != nil {
		t.Fatal(err)
	}
	if o, _ := s.world.Nodes.Overview(t.Context()); o.Members[2].Status != "up" {
		t.Errorf("resumed: %+v", o.Members[2])
	}
	if _, err := s.cluster().DownNode(t.Context(), connect.NewRequest(&clusterv1.DownNodeRequest{NodeId: "n3"})); err != nil {
		t.Fatal(err)
	}
	moves, err := s.cluster().RebalanceShards(t.Context(), connect.NewRequest(&clusterv1.RebalanceShardsRequest{}))
	if err != nil || moves.Msg.GetMoves() != 1 {
		t.Error(moves, err)
	}
	_, said := s.post(t, clusterPath+"FinalizeUpgrade", `{"clusterVersion":3,"dryRun":true}`)
	node := func(n int) string {
		return fmt.Sprintf(`{"nodeId":"n%d","version":"test","minClusterVersion":1,"maxClusterVersion":2,"obstacle":"node n%d supports cluster versions 1 to 2"}`, n, n)
	}
	wantJSON(t, said, `{"clusterVersion":1,"targetClusterVersion":3,"nodes":[`+node(1)+`,`+node(2)+`,`+node(3)+`]}`)
	_, said = s.post(t, clusterPath+"FinalizeUpgrade", `{"clusterVersion":2}`)
	if !strings.Contains(said, `"clusterVersion":2`) {
		t.Error(said)
	}
	for _, c := range []struct {
		path, body string
		code       connect.Code
	}{
		{"MoveShard", `{"shardId":1,"toNode":"n9"}`, connect.CodeNotFound},
		{"MoveShard", `{"shardId":9,"toNode":"n1"}`, connect.CodeNotFound},
		{"MoveShard", `{"shardId":1,"toNode":"n3"}`, connect.CodeFailedPrecondition},
		{"MoveShard", `{"shardId":1}`, connect.CodeInvalidArgument},
		{"DrainNode", `{"nodeId":"n9"}`, connect.CodeNotFound},
		{"DrainNode", `{}`, connect.CodeInvalidArgument},
		{"DownNode", `{"nodeId":"n9"}`, connect.CodeNotFound},
		{"RemoveNode", `{"nodeId":"n9"}`, connect.CodeNotFound},
		{"ResumeNode", `{"nodeId":"n9"}`, connect.CodeNotFound},
		{"FinalizeUpgrade", `{"clusterVersion":3}`, connect.CodeFailedPrecondition},
		{"PutSetting", `{"key":"a b"}`, connect.CodeInvalidArgument},
		{"PutSetting", `{"value":"x"}`, connect.CodeInvalidArgument},
		{"PutSetting", `{"key":"a","value":"` + strings.Repeat("x", 16385) + `"}`, connect.CodeInvalidArgument},
		{"GetSetting", `{"key":"absent"}`, connect.CodeNotFound},
	} {
		_, body := s.post(t, clusterPath+c.path, c.body)
		wantCode(t, body, c.code)
	}
	s.world.Nodes.Fail(&sharding.NotLeaderError{})
	s.world.Kept.Fail(&sharding.NotLeaderError{})
	for path, row := range adminRows {
		if row.body != "" && path != "CheckAccess" { // CheckAccess is answered by the node itself
			_, body := s.post(t, clusterPath+path, row.body)
			wantCode(t, body, connect.CodeUnavailable)
		}
	}
}

// An operation that takes longer than the call returns an error that describes
// the remaining work.
func TestOperationOutlastsItsCall(t *testing.T) {
	s := serve(t, edge.Options{Admin: true, DefaultDeadline: time.Second})
	for _, order := range []struct{ path, body, want string }{
		{"MoveShard", `{"shardId":1,"toNode":"n2"}`, "shard 1 is still led by n1, and the transfer to n2 continues"},
		{"DrainNode", `{"nodeId":"n1"}`, "n1 still leads 2 of 2 shards"},
		{"RemoveNode", `{"nodeId":"n3"}`, "n3 is leaving and still has 4 replicas"},
	} {
		_, body := s.post(t, clusterPath+order.path, order.body)
		wantCode(t, body, connect.CodeDeadlineExceeded)
		if !strings.Contains(body, order.want) {
			t.Errorf("%s: %s", order.path, body)
		}
	}
	for s.world.Nodes.Step() { // the operations are still accepted
	}
	// n1 is suspected, so a different node reports that n1 leads nothing.
	s.world.Nodes.Pend(&clusterv1.PendingOperation{Kind: "drain", NodeId: "n1", Remaining: 2, Reason: "nothing is heard of it"})
	if _, body := s.post(t, clusterPath+"DrainNode", `{"nodeId":"n1"}`); !strings.Contains(body, "n1 may still lead 2 shards: nothing is heard of it") {
		t.Errorf("the drain is pending: %s", body)
	}
	if o, _ := s.world.Nodes.Overview(t.Context()); o.Members[0].Leaders != 0 || len(o.Members) != 2 {
		t.Errorf("%+v", o.Members)
	}
}

// The node that a caller asks checks the permission. The coordinator's node
// accepts the forwarded operation, and the forwarding node waits for its effect.
func TestForwardedOperations(t *testing.T) {
	w := rpctest.New()
	defer w.Close()
	server := services.NewServer(w.Services(), edge.Options{})
	peer := httptest.NewServer(server.ForPeers())
	defer peer.Close()
	client := clusterv1connect.NewClusterServiceClient(http.DefaultClient, peer.URL+strings.TrimSuffix(leaderproxy.Path, "/"))
	if _, err := client.MoveShard(t.Context(), connect.NewRequest(&clusterv1.MoveShardRequest{ShardId: 1, ToNode: "n2"})); err != nil {
		t.Fatal(err)
	}
	if shards, _ := w.Nodes.Shards(t.Context()); shards[0].Leader != "n1" {
		t.Errorf("the call waited for %s to lead", shards[0].Leader)
	}
	if !w.Nodes.Step() {
		t.Error("the order did not arrive")
	}
	if _, err := client.MoveShard(t.Context(), connect.NewRequest(&clusterv1.MoveShardRequest{ShardId: 1, ToNode: "n9"})); connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("a refusal: %v", err)
	}
}

// A watch sends the current state of the cluster and then its changes; several
// changes between two polls are sent as one.
func TestWatchCluster(t *testing.T) {
	s := serve(t, edge.Options{Admin: true})
	watch, err := s.cluster().WatchCluster(t.Context(), connect.NewRequest(&clusterv1.WatchClusterRequest{}))
	if err != nil || !watch.Receive() {
		t.Fatal(err, watch.Err())
	}
	first := proto.Clone(watch.Msg()).(*clusterv1.WatchClusterResponse)
	if len(first.GetMembers()) != 3 || first.GetMembers()[0].GetLeaderCount() != 2 || first.GetNodeId() != "n1" || first.GetShardCount() != 4 || !first.GetQuorum() {
		t.Errorf("first: %v", first)
	}
	for range 1000 {
		s.world.Nodes.MoveShard(t.Context(), 1, "n2")
		s.world.Nodes.MoveShard(t.Context(), 1, "n3")
		for s.world.Nodes.Step() {
		}
	}
	s.world.Nodes.Down(t.Context(), "n2")
	for n := 0; ; n++ {
		if !watch.Receive() {
			t.Fatal(watch.Err())
		}
		if m := watch.Msg().GetMembers(); m[1].GetStatus() == "down" && m[2].GetLeaderCount() == 2 {
			break
		}
		if n > 100 {
			t.Fatal("a message for every change")
		}
	}
	s.world.Nodes.Fail(request.ErrNotReady)
	if watch.Receive() || connect.CodeOf(watch.Err()) != connect.CodeUnavailable {
		t.Errorf("a node that cannot tell: %v, %v", watch.Msg(), watch.Err())
	}
	watch.Close()
}

func TestSettings(t *testing.T) {
	s := serve(t, edge.Options{Admin: true})
	put := func(key, value string, revision uint64) {
		t.Helper()
		res, err := s.cluster().PutSetting(t.Context(), connect.NewRequest(&clusterv1.PutSettingRequest{Key: key, Value: value}))
		if err != nil || res.Msg.GetRevision() != revision {
			t.Fatal(res, err)
		}
	}
	put("a.one", "1", 1)
	put("b.two", "2", 2)
	_, body := s.post(t, clusterPath+"GetSetting", `{"key":"b.two"}`)
	wantJSON(t, body, `{"setting":{"key":"b.two","value":"2","revision":"2"}}`)

	watch, err := s.cluster().WatchSettings(t.Context(), connect.NewRequest(&clusterv1.WatchSettingsRequest{KeyPrefix: "a."}))
	if err != nil {
		t.Fatal(err)
	}
	next := func(want string) {
		t.Helper()
		if !watch.Receive() {
			t.Fatal(watch.Err())
		}
		m := watch.Msg().GetSetting()
		if got := fmt.Sprintf("%s=%s@%d", m.GetKey(), m.GetValue(), m.GetRevision()); got != want {
			t.Fatalf("got %s, want %s", got, want)
		}
	}
	next("a.one=1@1")
	put("b.three", "3", 3) // outside of the watched prefix
	put("a.one", "11", 4)
	next("a.one=11@4")
	put("a.one", "", 5)
	next("a.one=@5")
	put("a.one", "again", 6)
	next("a.one=again@6")
	watch.Close()

	_, body = s.post(t, clusterPath+"ListSettings", `{"keyPrefix":"b."}`)
	wantJSON(t, body, `{"settings":[{"key":"b.three","value":"3","revision":"3"},{"key":"b.two","value":"2","revision":"2"}],"revision":"6"}`)
}

// A watch without settings sends its headers immediately, over HTTP/1.1 too.
func TestWatchWithoutSettingsSendsHeaders(t *testing.T) {
	s := serve(t, edge.Options{})
	client := clusterv1connect.NewClusterServiceClient(http.DefaultClient, s.url)
	watch, err := client.WatchSettings(t.Context(), connect.NewRequest(&clusterv1.WatchSettingsRequest{}))
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Close()
	s.world.Nodes.Put(t.Context(), "a", "b")
	if !watch.Receive() || watch.Msg().GetSetting().GetValue() != "b" {
		t.Error(watch.Msg(), watch.Err())
	}
}

// A watch ends when the server stops, so that its client reconnects to a
// different node.
func TestWatchesAreBounded(t *testing.T) {
	s := serve(t, edge.Options{MaxStreams: 2, MaxAddressStreams: 2})
	one, err := s.cluster().WatchCluster(t.Context(), connect.NewRequest(&clusterv1.WatchClusterRequest{}))
	if err != nil || !one.Receive() {
		t.Fatal(err, one.Err())
	}
	defer one.Close()
	s.world.Nodes.Put(t.Context(), "a", "b")
	two, err := s.cluster().WatchSettings(t.Context(), connect.NewRequest(&clusterv1.WatchSettingsRequest{}))
	if err != nil || !two.Receive() {
		t.Fatal(err, two.Err())
	}
	defer two.Close()
	three, err := s.cluster().WatchCluster(t.Context(), connect.NewRequest(&clusterv1.WatchClusterRequest{}))
	if err == nil && three.Receive() {
		t.Error("a third stream was let in")
	}
	if err := errors.Join(err, three.Err()); connect.CodeOf(err) != connect.CodeResourceExhausted {
		t.Errorf("the third: %v", err)
	}
}
