package main

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	clusterv1 "github.com/hostd/hostd/api/gen/hostd/cluster/v1"
	"github.com/hostd/hostd/api/gen/hostd/cluster/v1/clusterv1connect"
	"github.com/hostd/hostd/cmd/hostd/internal/cli"
	"github.com/hostd/hostd/tests/support/loopback"
)

// threeNodes is the ClusterService of three nodes. Each call of Drain moves one
// of the first node's four shards.
type threeNodes struct {
	clusterv1connect.UnimplementedClusterServiceHandler
	mu        sync.Mutex
	leads     [3]uint32
	left      bool // n3 has left
	forgetful bool // does not remember members that left
	stuck     bool // n3 never finishes leaving, and the cluster is described only once
	leaving   bool // n3 is leaving
	// interruptions are the codes of the first attempts to remove n3.
	interruptions []connect.Code
	pending       string // the reason why the removal of n3 is pending; empty if it is not
	described     bool
	changed       chan struct{}
	settings      map[string]string
	revision      uint64
}

// serveThreeNodes serves f and returns its address.
func serveThreeNodes(t *testing.T) (*threeNodes, string) {
	t.Helper()
	f := &threeNodes{leads: [3]uint32{4, 3, 3}, changed: make(chan struct{}), settings: map[string]string{}}
	_, h := clusterv1connect.NewClusterServiceHandler(f)
	mux := http.NewServeMux()
	mux.Handle("/", h)
	s := httptest.NewUnstartedServer(mux)
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetHTTP1(true)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return f, s.URL
}

func (f *threeNodes) announce() {
	close(f.changed)
	f.changed = make(chan struct{})
}

func (f *threeNodes) members() []*clusterv1.Member {
	var out []*clusterv1.Member
	for i, id := range []string{"n1", "n2", "n3"} {
		if id == "n3" && f.left {
			continue
		}
		status := "up"
		if id == "n3" && f.leaving {
			status = "leaving"
		}
		out = append(out, &clusterv1.Member{NodeId: id, Address: "127.0.0.1:1", Status: status, Reachable: id != "n3", Roles: []string{"host"},
			LeaderCount: f.leads[i], ReplicaCount: 10, Version: "test"})
	}
	return out
}

func (f *threeNodes) GetCluster(context.Context, *connect.Request[clusterv1.GetClusterRequest]) (*connect.Response[clusterv1.GetClusterResponse], error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := &clusterv1.GetClusterResponse{Members: f.members(), Coordinator: "n2", Quorum: true, NodeId: "n1", ShardCount: 10}
	if f.pending != "" {
		out.PendingOperations = []*clusterv1.PendingOperation{{Kind: "leave", NodeId: "n3", Remaining: 4, Reason: f.pending}}
	}
	if f.stuck {
		if f.described {
			return nil, connect.NewError(connect.CodeUnavailable, errors.New("not now"))
		}
		f.described = true
		out.PendingOperations = []*clusterv1.PendingOperation{{Kind: "leave", NodeId: "n3", Remaining: 4, Reason: "node n2 is drained"}}
	}
	return connect.NewResponse(out), nil
}

func (f *threeNodes) ListShards(context.Context, *connect.Request[clusterv1.ListShardsRequest]) (*connect.Response[clusterv1.ListShardsResponse], error) {
	out := &clusterv1.ListShardsResponse{}
	for i := range uint32(10) {
		out.Shards = append(out.Shards, &clusterv1.Shard{ShardId: i, Leader: "n1", Voters: []string{"n1", "n2", "n3"}})
	}
	return connect.NewResponse(out), nil
}

func (f *threeNodes) WatchCluster(ctx context.Context, _ *connect.Request[clusterv1.WatchClusterRequest], out *connect.ServerStream[clusterv1.WatchClusterResponse]) error {
	for {
		f.mu.Lock()
		m, changed := &clusterv1.WatchClusterResponse{Members: f.members(), Coordinator: "n2", Quorum: true, NodeId: "n1", ShardCount: 10}, f.changed
		f.mu.Unlock()
		if err := out.Send(m); err != nil {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (f *threeNodes) DrainNode(_ context.Context, r *connect.Request[clusterv1.DrainNodeRequest]) (*connect.Response[clusterv1.DrainNodeResponse], error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if r.Msg.GetNodeId() == "n3" && f.left && !f.forgetful {
		return connect.NewResponse(&clusterv1.DrainNodeResponse{}), nil
	}
	if r.Msg.GetNodeId() != "n1" {
		return nil, connect.NewError(connect.CodeNotFound, errors.New("no such node; hostd node ls shows them"))
	}
	f.leads[0]--
	f.leads[1]++
	f.announce()
	if f.leads[0] > 0 {
		return nil, connect.NewError(connect.CodeDeadlineExceeded, errors.New("n1 still leads shards; hostd node ls shows it"))
	}
	return connect.NewResponse(&clusterv1.DrainNodeResponse{Moved: 1}), nil
}

func (f *threeNodes) RebalanceShards(context.Context, *connect.Request[clusterv1.RebalanceShardsRequest]) (*connect.Response[clusterv1.RebalanceShardsResponse], error) {
	return connect.NewResponse(&clusterv1.RebalanceShardsResponse{Moves: 3}), nil
}

func (f *threeNodes) MoveShard(context.Context, *connect.Request[clusterv1.MoveShardRequest]) (*connect.Response[clusterv1.MoveShardResponse], error) {
	return nil, connect.NewError(connect.CodePermissionDenied, errors.New("this node lets nobody change the cluster; set 'admin: full' in its configuration"))
}

func (f *threeNodes) PutSetting(_ context.Context, r *connect.Request[clusterv1.PutSettingRequest]) (*connect.Response[clusterv1.PutSettingResponse], error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.revision++
	f.settings[r.Msg.GetKey()] = r.Msg.GetValue()
	f.announce()
	return connect.NewResponse(&clusterv1.PutSettingResponse{Revision: f.revision}), nil
}

func (f *threeNodes) GetSetting(_ context.Context, r *connect.Request[clusterv1.GetSettingRequest]) (*connect.Response[clusterv1.GetSettingResponse], error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	v, ok := f.settings[r.Msg.GetKey()]
	if !ok {
		return nil, connect.NewError(connect.CodeNotFound, errors.New("the setting is not set; 'hostd setting ls' lists the settings"))
	}
	return connect.NewResponse(&clusterv1.GetSettingResponse{Setting: &clusterv1.Setting{Key: r.Msg.GetKey(), Value: v, Revision: f.revision}}), nil
}

func (f *threeNodes) ListSettings(context.Context, *connect.Request[clusterv1.ListSettingsRequest]) (*connect.Response[clusterv1.ListSettingsResponse], error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := &clusterv1.ListSettingsResponse{Revision: f.revision}
	for k, v := range f.settings {
		out.Settings = append(out.Settings, &clusterv1.Setting{Key: k, Value: v, Revision: f.revision})
	}
	return connect.NewResponse(out), nil
}

func (f *threeNodes) WatchSettings(ctx context.Context, _ *connect.Request[clusterv1.WatchSettingsRequest], out *connect.ServerStream[clusterv1.WatchSettingsResponse]) error {
	for {
		f.mu.Lock()
		changed, revision, all := f.changed, f.revision, map[string]string{}
		for k, v := range f.settings {
			all[k] = v
		}
		f.mu.Unlock()
		for k, v := range all {
			if err := out.Send(&clusterv1.WatchSettingsResponse{Setting: &clusterv1.Setting{Key: k, Value: v, Revision: revision}}); err != nil {
				return err
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func TestClusterCommands(t *testing.T) {
	f, addr := serveThreeNodes(t)
	// A node that is down is skipped.
	t.Setenv("HOSTD_ADDR", loopback.Host()+":7070, "+addr)

	v := decode[clusterView](t, hostd(t, "cluster", "status", "-o", "json").out)
	if len(v.Members) != 3 || v.Coordinator != "n2" || v.NodeID != "n1" || !v.Quorum || v.ShardCount != 10 || v.Members[2].Reachable {
		t.Errorf("cluster status: %+v", v)
	}
	if got := hostd(t, "node", "ls"); !strings.HasPrefix(got.out, "NODE ") || strings.Count(got.out, "\n") != 4 || !strings.Contains(got.err, "10 shards have fewer than 3 reachable replicas") {
		t.Errorf("node ls: %+v", got)
	}
	if got := hostd(t, "cluster", "status"); !strings.Contains(got.out, "\n10 shards have fewer than 3 reachable replicas; see 'hostd shard ls'\n") {
		t.Errorf("cluster status: %+v", got)
	}
	for _, args := range [][]string{{"node", "ls"}, {"cluster", "status"}} {
		lack := decode[struct{ ShardsLackingReplicas, ShardsWithoutMajority *int }](t, hostd(t, append(args, "-o", "json")...).out)
		if n, halted := lack.ShardsLackingReplicas, lack.ShardsWithoutMajority; n == nil || *n != 10 || halted == nil || *halted != 0 {
			t.Errorf("%v -o json: %v shards lack replicas, %v a majority", args, n, halted)
		}
	}
	if got := hostd(t, "cluster", "rebalance"); got.code != cli.ExitDone || !strings.Contains(got.err, "3 moves") || got.out != "" {
		t.Errorf("cluster rebalance: %+v", got)
	}
	if got := hostd(t, "shard", "move", "1", "n2"); got.code != cli.ExitFailed || !strings.Contains(got.err, "'admin: full'") {
		t.Errorf("shard move without permission: %+v", got)
	}
	if got := hostd(t, "node", "drain", "n9"); got.code != cli.ExitFailed || !strings.Contains(got.err, "hostd node ls") {
		t.Errorf("drain of a stranger: %+v", got)
	}
	if got := hostd(t, "node", "drain"); got.code != cli.ExitUsage || !strings.Contains(got.err, "HOSTD_NODE_ID") {
		t.Errorf("drain without a node: %+v", got)
	}

	watch := start(t, "cluster", "watch", "-o", "json")
	eventually(t, "the watch shows the members", func() bool { return strings.Count(watch.out.String(), "\n") == 11 })
	status := start(t, "cluster", "status", "--watch")
	eventually(t, "the status is shown", func() bool { return strings.Contains(status.out.String(), "seen by n1") })
	t.Setenv("HOSTD_NODE_ID", "n1") // as in a pod
	if got := hostd(t, "node", "drain"); got.code != cli.ExitDone || !strings.Contains(got.err, "n1 still leads 3 shards") || !strings.Contains(got.err, "can be stopped") {
		t.Errorf("node drain: %+v", got)
	}
	if f.leads != [3]uint32{0, 7, 3} {
		t.Errorf("after the drain: %v", f.leads)
	}
	eventually(t, "the watch shows the end", func() bool {
		return strings.Contains(watch.out.String(), `"from":1,"to":0`) || strings.Contains(watch.out.String(), `"to":0`)
	})
	eventually(t, "the status is shown again", func() bool { return strings.Count(status.out.String(), "seen by n1") > 1 })
	for _, r := range []*running{watch, status} {
		r.interrupt()
		if code := r.end(t); code != cli.ExitDone {
			t.Errorf("an interrupted watch: exit code %d, %s", code, r.err.String())
		}
	}
	for line := range strings.Lines(watch.out.String()) {
		if c := decode[clusterChange](t, line); c.What == "" || c.Time.IsZero() || c.From == c.To {
			t.Errorf("a change that is none: %s", line)
		}
	}
}

func TestSettingCommands(t *testing.T) {
	_, addr := serveThreeNodes(t)
	t.Setenv("HOSTD_ADDR", addr)
	if got := hostd(t, "setting", "put", "a.b", "one two"); got.code != cli.ExitDone || got.err != "revision 1\n" || got.out != "" {
		t.Errorf("put: %+v", got)
	}
	if got := hostd(t, "setting", "get", "a.b"); got.out != "one two\n" {
		t.Errorf("get: %+v", got)
	}
	if got := hostd(t, "setting", "get", "x"); got.code != cli.ExitFailed || !strings.Contains(got.err, "hostd setting ls") || strings.Contains(got.err, "module") {
		t.Errorf("get of what is not set: %+v", got)
	}
	list := decode[struct {
		Settings []settingView
		Revision uint64
	}](t, hostd(t, "setting", "ls", "-o", "json").out)
	if len(list.Settings) != 1 || list.Settings[0] != (settingView{"a.b", "one two", 1}) || list.Revision != 1 {
		t.Errorf("ls: %+v", list)
	}
	watch := start(t, "setting", "watch", "a")
	eventually(t, "the watch shows the setting", func() bool { return watch.out.String() == "1  a.b  one two\n" })
	hostd(t, "setting", "put", "a.b", "three")
	eventually(t, "the watch shows the change", func() bool { return strings.HasSuffix(watch.out.String(), "2  a.b  three\n") })
	watch.interrupt()
	if code := watch.end(t); code != cli.ExitDone {
		t.Errorf("an interrupted watch: exit code %d, %s", code, watch.err.String())
	}
}

func TestClusterChanges(t *testing.T) {
	one := &clusterv1.Member{NodeId: "n1", Address: "a:1", Status: "up", Reachable: true, LeaderCount: 2, ReplicaCount: 5, Version: "1"}
	two := &clusterv1.Member{NodeId: "n2", Address: "b:1", Status: "joining"}
	moved := proto.CloneOf(one)
	moved.Address, moved.Reachable, moved.LeaderCount = "a:2", false, 0
	type state = *clusterv1.WatchClusterResponse
	texts := func(before clusterState, now state) string {
		var out []string
		for _, c := range clusterChanges(before, now) {
			c.Time = time.Unix(0, 0).UTC()
			_, text, _ := strings.Cut(c.text(), "  ")
			out = append(out, text)
		}
		return strings.Join(out, "; ")
	}
	first := state(&clusterv1.WatchClusterResponse{Coordinator: "n1", Quorum: true, Members: []*clusterv1.Member{one}})
	for _, tt := range []struct {
		before clusterState
		now    state
		want   string
	}{
		{nil, first, "cluster  coordinator  - -> n1; cluster  quorum  - -> true; node n1  member  - -> up; node n1  leaderCount  0 -> 2; node n1  replicaCount  0 -> 5"},
		{first, first, ""},
		{first, &clusterv1.WatchClusterResponse{Members: []*clusterv1.Member{moved}},
			"cluster  coordinator  n1 -> -; cluster  quorum  true -> false; node n1  reachable  true -> false; node n1  address  a:1 -> a:2; node n1  leaderCount  2 -> 0"},
		{first, &clusterv1.WatchClusterResponse{Coordinator: "n1", Quorum: true, Members: []*clusterv1.Member{two}}, "node n2  member  - -> joining; node n1  member  up -> -"},
	} {
		if got := texts(tt.before, tt.now); got != tt.want {
			t.Errorf("got  %s\nwant %s", got, tt.want)
		}
	}
}

// A node that was slow or failed is shown as such until it may lead shards
// again.
func TestTroubledNodesAreMarked(t *testing.T) {
	until := timestamppb.New(time.Unix(1_700_000_000, 0))
	var out strings.Builder
	memberTable(&out, []*clusterv1.Member{
		{NodeId: "n1", Status: "up"},
		{NodeId: "n2", Status: "up", Impairment: &clusterv1.Impairment{Slow: true, Cooldown: durationpb.New(20 * time.Second)}},
		{NodeId: "n3", Status: "up", Impairment: &clusterv1.Impairment{Slow: true, Until: until, Cooldown: durationpb.New(20 * time.Second)}},
		{NodeId: "n4", Status: "up", Draining: true, Impairment: &clusterv1.Impairment{Until: until}},
		{NodeId: "n5", Status: "up", Impairment: &clusterv1.Impairment{DamageCount: 3}},
		{NodeId: "n6", Status: "up", Impairment: &clusterv1.Impairment{DiskFull: true}},
	})
	lines := strings.Split(out.String(), "\n")
	for i, want := range []struct{ status, end string }{
		{"STATUS", "LEADS AGAIN"},
		{"up ", "-"},
		{"up,slow ", "20s after it is quick"},
		{"up,slow ", "2023-11-14T22:13:20Z"},
		{"up,draining ", "2023-11-14T22:13:20Z"},
		{"up,damaged ", "when it is resumed"},
		{"up,disk-full ", "when its disk has room"},
	} {
		if !strings.Contains(lines[i], want.status) || !strings.HasSuffix(lines[i], want.end) {
			t.Errorf("line %d is %q", i, lines[i])
		}
	}
}

// RemoveNode makes n3 leave while the first call waits for it: that call does not
// see the end, and later calls find no such member.
func (f *threeNodes) RemoveNode(_ context.Context, r *connect.Request[clusterv1.RemoveNodeRequest]) (*connect.Response[clusterv1.RemoveNodeResponse], error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if r.Msg.GetNodeId() != "n3" || f.left && f.forgetful {
		return nil, connect.NewError(connect.CodeNotFound, errors.New("no such node; hostd node ls shows them"))
	}
	if f.left {
		return connect.NewResponse(&clusterv1.RemoveNodeResponse{}), nil
	}
	if len(f.interruptions) > 0 {
		code := f.interruptions[0]
		f.interruptions = f.interruptions[1:]
		return nil, connect.NewError(code, errors.New("n3 is leaving"))
	}
	f.left = !f.stuck
	return nil, connect.NewError(connect.CodeDeadlineExceeded, errors.New("n3 is leaving and still holds 4 replicas"))
}

// An order that remains in effect is reported as such when the command's
// timeout is over, with the last known reason for the delay, even if no node
// answers any more.
func TestUnfinishedOrderIsReported(t *testing.T) {
	nodes, addr := serveThreeNodes(t)
	nodes.stuck = true
	t.Setenv("HOSTD_ADDR", addr)
	got := hostd(t, "node", "leave", "n3", "--yes", "--timeout", "1s")
	if got.code != cli.ExitFailed || !strings.Contains(got.err, "hostd: leave: the operation is pending") || strings.Count(got.err, "node n2 is drained") != 2 {
		t.Errorf("%+v", got)
	}
}

// TestLeaveContinuesAfterInterruptedAttempts checks that leave waits until the
// node has left although attempts fail in between, as they do while another node
// becomes the coordinator. The removal is accepted by then and continues.
func TestLeaveContinuesAfterInterruptedAttempts(t *testing.T) {
	nodes, addr := serveThreeNodes(t)
	nodes.pending = "node n2 is drained"
	nodes.interruptions = []connect.Code{connect.CodeDeadlineExceeded, connect.CodeUnknown, connect.CodeUnavailable}
	t.Setenv("HOSTD_ADDR", addr)
	if got := hostd(t, "node", "leave", "n3", "--yes"); got.code != cli.ExitDone || !strings.Contains(got.err, "n3 has left the cluster") {
		t.Errorf("%+v", got)
	}
}

// TestLeaveIsIdempotent checks that leave succeeds for a node that has left
// during the wait and for one that left before the command, which the cluster
// knows from cluster version 3 on. Then a drain succeeds too and says that the node
// has left. A node that was never a member is not found.
func TestLeaveIsIdempotent(t *testing.T) {
	for _, forgetful := range []bool{false, true} { // below cluster version 3
		nodes, addr := serveThreeNodes(t)
		nodes.forgetful = forgetful
		t.Setenv("HOSTD_ADDR", addr)
		for again := range 2 {
			code, want := cli.ExitDone, "n3 has left the cluster"
			if again > 0 && forgetful {
				code, want = cli.ExitFailed, "no such node"
			}
			if got := hostd(t, "node", "leave", "n3", "--yes"); got.code != code || !strings.Contains(got.out+got.err, want) {
				t.Errorf("forgetful %v: %+v, want %q", forgetful, got, want)
			}
		}
		if got := hostd(t, "node", "drain", "n3"); !forgetful && (got.code != cli.ExitDone || !strings.Contains(got.err, "n3 is no longer a member")) {
			t.Errorf("drain of a node that has left: %+v", got)
		}
		if got := hostd(t, "node", "leave", "n33", "--yes"); got.code != cli.ExitFailed || !strings.Contains(got.err, "no such node") {
			t.Errorf("a node that never was: %+v", got)
		}
	}
}

func (f *threeNodes) DownNode(context.Context, *connect.Request[clusterv1.DownNodeRequest]) (*connect.Response[clusterv1.DownNodeResponse], error) {
	return connect.NewResponse(&clusterv1.DownNodeResponse{}), nil
}

// TestDownPrintsItsEffect checks that an operator who declares a node down
// learns what shards lack, and that a leaving node no longer waits.
func TestDownPrintsItsEffect(t *testing.T) {
	nodes, addr := serveThreeNodes(t)
	t.Setenv("HOSTD_ADDR", addr)
	const waits = "n3 will leave without a replacement: shards keep 1 of the 3 replicas"
	for _, leaving := range []bool{false, true} {
		nodes.mu.Lock()
		nodes.leaving = leaving
		nodes.mu.Unlock()
		got := hostd(t, "node", "down", "n2", "--yes")
		// n3 does not answer, and n2 counts as down although the asked node has not
		// learned it yet.
		if got.code != cli.ExitDone || !strings.HasPrefix(got.err, "n2 is down\n10 shards have fewer than 3 reachable replicas, 10 without a majority") || strings.Contains(got.err, waits) != leaving {
			t.Errorf("leaving %v: %+v", leaving, got)
		}
	}
}
