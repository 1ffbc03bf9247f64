package peertls

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	clusterv1 "github.com/hostd/hostd/api/gen/hostd/cluster/v1"
	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	modulev1 "github.com/hostd/hostd/api/gen/hostd/module/v1"
	peerv1 "github.com/hostd/hostd/api/gen/hostd/peer/v1"
	"github.com/hostd/hostd/api/gen/hostd/peer/v1/peerv1connect"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/access"
	"github.com/hostd/hostd/sharding/meta"
	"github.com/hostd/hostd/tests/support/testkit"
)

// anybodys lists the procedures that nodes serve to nodes that are not yet
// members of their cluster.
var anybodys = []string{
	peerv1connect.PeerServiceProbeProcedure, peerv1connect.PeerServicePledgeProcedure, peerv1connect.PeerServiceVouchProcedure,
	peerv1connect.PeerServiceJoinProcedure, peerv1connect.PeerServiceRenewProcedure, peerv1connect.PeerServiceLinkProcedure, peerv1connect.PeerServiceSendSnapshotProcedure,
}

// allBetweenNodes are all procedures that nodes serve to nodes: their own calls
// and the calls that they forward for clients.
func allBetweenNodes() (paths []string) {
	for _, file := range []protoreflect.FileDescriptor{
		peerv1.File_hostd_peer_v1_peer_proto, peerv1.File_hostd_peer_v1_forward_proto, peerv1.File_hostd_peer_v1_transfer_proto,
		entityv1.File_hostd_entity_v1_entity_proto, clusterv1.File_hostd_cluster_v1_cluster_proto, modulev1.File_hostd_module_v1_module_proto,
	} {
		hop := ""
		if file.Package() != "hostd.peer.v1" {
			hop = "/hostd.hop"
		}
		for i := range file.Services().Len() {
			methods := file.Services().Get(i).Methods()
			for k := range methods.Len() {
				paths = append(paths, fmt.Sprintf("%s/%s/%s", hop, file.Services().Get(i).FullName(), methods.Get(k).Name()))
			}
		}
	}
	return paths
}

// as returns a forger with the certificate of a node.
func (f forger) as(node string) forger {
	f.node, f.config = node, as(f.own.pair(request(node)), f.own)
	return f
}

// audited returns three nodes with audit logs that require TLS of each other.
func audited(t *testing.T) (*world, forger) {
	t.Helper()
	return auditing(t, "changes")
}

func auditing(t *testing.T, level string) (*world, forger) {
	t.Helper()
	own := newAuthority(t)
	w := newWorld(t, own)
	for i := range w.Nodes() {
		w.flags[i] = append(w.flags[i], "--audit", level)
		w.mode(i, "require")
	}
	w.Start()
	w.Push("counter")
	w.AwaitSpread()
	f := forger{t: t, own: own}.as("n9")
	f.starts = f.members(w.Node(0))
	return w, f
}

// refusals returns the procedures for which a node's audit log records the
// rejection of a node.
func refusals(t *testing.T, n *testkit.Node, node string) (procedures []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(n.DataDir(), "audit", "audit.log"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if !strings.Contains(line, `"principal":{"kind":"node","name":"`+node+`"}`) || !strings.Contains(line, `"code":"permission_denied"`) {
			continue
		}
		_, rest, _ := strings.Cut(line, `"method":"`)
		procedure, _, _ := strings.Cut(rest, `"`)
		procedures = append(procedures, procedure)
	}
	return procedures
}

// A node with a certificate of the cluster's authority may call only the
// procedures for joining until it has joined, and each rejection is in the
// audit log.
func TestNonMembersMayOnlyJoin(t *testing.T) {
	w, f := audited(t)
	for i, n := range w.Nodes() {
		for _, path := range allBetweenNodes() {
			status, text := f.call(n, f.node, 1, path, &peerv1.ProbeRequest{})
			refused := status == http.StatusForbidden && strings.Contains(text, "KIND_NOT_MEMBER")
			if refused == slices.Contains(anybodys, path) {
				t.Errorf("%s on %s: %d, %s", path, n.ID(), status, text)
			}
			if logged := strings.TrimPrefix(path, "/hostd.hop"); refused {
				n.Await("the refusal of "+path+" is in the audit log", func() bool { return slices.Contains(refusals(t, n, f.node), logged) })
			}
		}
		if i == 0 && !strings.Contains(n.Log(), "rejected a call from a node that is not a member") {
			t.Error("the log does not name it")
		}
	}
	for _, m := range w.Overview(0).GetMembers() {
		if m.GetNodeId() == f.node {
			t.Error("it has become a member")
		}
	}
}

// hangs opens a link in the name of a node, and returns a channel that receives
// the error when the link ends.
func (f forger) hangs(to *testkit.Node) (ended <-chan error) {
	f.t.Helper()
	calls := peerv1connect.NewPeerServiceClient(&http.Client{Transport: f.transport(to)}, to.PeerAPI())
	out := make(chan error, 1)
	number := 0
	to.Until("a link is taken", func() error {
		ctx, cancel := context.WithCancel(context.Background())
		number++
		stream := calls.Link(ctx)
		f.hello(stream.RequestHeader())
		stream.RequestHeader().Set("Hostd-Link", strconv.Itoa(number))
		err := stream.Send(&peerv1.LinkRequest{Beat: 1})
		if err == nil {
			_, err = stream.Receive()
		}
		if err != nil {
			cancel()
			return err
		}
		f.t.Cleanup(cancel)
		go func() {
			for err == nil {
				_, err = stream.Receive()
			}
			out <- err
		}()
		return nil
	})
	return out
}

// A node that an operator marked as down is disconnected at once by every node,
// although its process runs and its certificate is valid. Its next process is
// admitted.
func TestDownedNodeIsDisconnected(t *testing.T) {
	w, f := audited(t)
	put := 1
	if w.Leader(0) == put {
		put = 2
	}
	down, other := w.Node(put), w.Node(3-put)
	f = f.as(down.ID())
	mine := func(n *testkit.Node, start uint64, path string) (int, string) {
		return f.call(n, f.node, start, path, &peerv1.ReadMetaRequest{})
	}
	read := peerv1connect.PeerServiceReadMetaProcedure
	if status, text := mine(other, f.starts[f.node], peerv1connect.PeerServiceCountsProcedure); status != http.StatusOK {
		t.Fatalf("before: %d, %s", status, text)
	}
	down.Pause() // so that all open links belong to the forger
	var links []<-chan error
	for i, n := range w.Nodes() {
		if i != put {
			links = append(links, f.hangs(n))
		}
	}
	down.Continue()
	if text, code := other.Run("node", "down", down.ID(), "--yes", "--addr", other.API()); code != 0 {
		t.Fatalf("node down: %d, %s", code, text)
	}
	for _, ended := range links {
		w.Await("an open link ends", func() bool { return len(ended) > 0 })
	}
	for i, n := range w.Nodes() {
		if i == put {
			continue
		}
		n.Await("it knows that the node was put down", func() bool {
			status, text := mine(n, f.starts[f.node], read)
			return status != http.StatusOK && strings.Contains(text, "KIND_PUT_DOWN")
		})
		for _, path := range allBetweenNodes() {
			if path == peerv1connect.PeerServiceProbeProcedure || path == peerv1connect.PeerServicePledgeProcedure {
				continue
			}
			for _, start := range []uint64{f.starts[f.node], f.starts[f.node] + 1} {
				status, text := mine(n, start, path)
				if start > f.starts[f.node] && slices.Contains(anybodys, path) {
					continue // this is the next process, which may join
				}
				if !strings.Contains(text, "KIND_PUT_DOWN") && !strings.Contains(text, "KIND_NOT_MEMBER") {
					t.Errorf("%s on %s as start %d: %d, %s", path, n.ID(), start, status, text)
				}
			}
		}
		if !slices.Contains(refusals(t, n, f.node), read) {
			t.Errorf("the audit log of %s has no line", n.ID())
		}
	}
	w.Restart(put)
	w.Await("another start is admitted", func() bool {
		for _, m := range w.Overview(3 - put).GetMembers() {
			if m.GetNodeId() == f.node {
				return m.GetStatus() == "up" && m.GetReachable()
			}
		}
		return false
	})
	w.AwaitSpread()
	after := f.members(w.Node(3 - put))
	if status, text := mine(other, after[f.node], peerv1connect.PeerServiceCountsProcedure); status != http.StatusOK {
		t.Errorf("after: %d, %s", status, text)
	}
}

// A node with outdated metadata accepts raft messages from nodes that it does
// not know, and catches up. These nodes joined, and lead shards, while it was
// down.
func TestNodeWithStaleMetadataCatchesUp(t *testing.T) {
	own := newAuthority(t)
	w := newWorld(t, own)
	for i := range w.Nodes() {
		w.mode(i, "require")
	}
	w.Start()
	w.Push("counter")
	w.AwaitSpread()
	away := 2
	w.Stop(away)
	var fresh *testkit.Node
	for range 2 {
		f := newFiles(own, "n"+strconv.Itoa(len(w.Nodes())+1))
		fresh = w.Add(append(slices.Clone(w.flags[0]), f.flags("require")...)...)
		w.Await("the new node is up", func() bool {
			return slices.ContainsFunc(w.Overview(1).GetMembers(), func(m *clusterv1.Member) bool { return m.GetNodeId() == fresh.ID() && m.GetStatus() == "up" })
		})
	}
	if text, code := fresh.Run("cluster", "set", "replication", "5", "--addr", fresh.API()); code != 0 {
		t.Fatalf("replication: %d, %s", code, text)
	}
	leads := func() int { return w.Leader(uint32(sharding.MetaShard)) }
	for _, n := range []*testkit.Node{w.Node(0), w.Node(1)} {
		n.Await("a node that joined leads the metadata", func() bool {
			n.Run("node", "drain", n.ID(), "--addr", n.API())
			return leads() != w.Place(n.ID())
		})
	}
	w.Await("a node that joined leads the metadata", func() bool { return leads() > away })
	w.Node(away).Start()
	w.Await("the node knows who has joined, and is served by them", func() bool {
		members := w.Overview(away).GetMembers()
		return len(members) == 5 && slices.ContainsFunc(members, func(m *clusterv1.Member) bool { return m.GetNodeId() == fresh.ID() && m.GetReachable() })
	})
	w.begin("counter")
	w.goesOn("with a node that was away")
	w.end()
}

// All nodes start at once, and there is no leader yet. They must be able to
// elect a leader with the metadata that they have stored.
func TestClusterStartsWithoutLeader(t *testing.T) {
	own := newAuthority(t)
	w := newWorld(t, own)
	for i := range w.Nodes() {
		w.mode(i, "require")
	}
	w.Start()
	w.AwaitSpread()
	w.StopAll()
	for _, n := range w.Nodes() {
		if err := n.Launch(); err != nil {
			t.Fatal(err)
		}
	}
	for _, n := range w.Nodes() {
		if err := n.AwaitReady(); err != nil {
			t.Fatal(err)
		}
	}
	w.begin("counter")
	w.goesOn("after")
	w.end()
}

// lines returns the number of lines in a node's audit log that contain all the
// texts.
func lines(t *testing.T, n *testkit.Node, texts ...string) (found int) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(n.DataDir(), "audit", "audit.log"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(line, text) }) {
			found++
		}
	}
	return found
}

// Every change that a node makes for another node is in its audit log, with the
// caller that the other node claims and with the other node's own ID. A member
// that invents callers can therefore be identified.
func TestForgedCallersAreAudited(t *testing.T) {
	w, f := audited(t)
	leader := w.Leader(uint32(sharding.MetaShard))
	n, other := w.Node(leader), w.Node((leader+1)%3)
	f = f.as(other.ID())
	f.principal = `{"kind":"token","name":"root"}`
	start := f.starts[f.node]
	via := []string{`"principal":{"kind":"token","name":"root"},"via":"node:` + f.node + `"`}
	for _, tt := range []struct {
		name, path string
		request    proto.Message
		line       []string
	}{
		{"it passes on a setting", "/hostd.hop/hostd.cluster.v1.ClusterService/PutSetting", &clusterv1.PutSettingRequest{Key: "log.level", Value: `"debug"`},
			[]string{`"method":"/hostd.cluster.v1.ClusterService/PutSetting","verb":"settings"`, "key=log.level"}},
		{"it proposes a setting", peerv1connect.PeerServiceProposeProcedure, &peerv1.ProposeRequest{Command: meta.PutSetting("log.for", []byte(`"1h"`))},
			[]string{`"method":"/hostd.peer.v1.PeerService/Propose","verb":"settings"`, "op=put_setting key=log.for"}},
		{"it proposes an admin", peerv1connect.PeerServiceProposeProcedure, &peerv1.ProposeRequest{Command: meta.PutRoleBinding(access.Binding{Subject: "token:eve", Roles: []string{"admin"}})},
			[]string{`"method":"/hostd.peer.v1.PeerService/Propose","verb":"security"`, "op=put_role_binding subject=token:eve roles=admin"}},
		{"it cuts a shard", peerv1connect.TransferServiceCutProcedure, &peerv1.CutRequest{Export: "mine", Shards: []uint32{1, 2, 3}},
			[]string{`"method":"/hostd.peer.v1.TransferService/Cut","verb":"export"`}},
		{"it holds the executors", peerv1connect.TransferServiceHoldProcedure, &peerv1.HoldRequest{Export: "mine", Milliseconds: 1},
			[]string{`"method":"/hostd.peer.v1.TransferService/Hold","verb":"export"`}},
	} {
		f.call(n, f.node, start, tt.path, tt.request)
		for _, stage := range []string{"received", "complete"} {
			texts := slices.Concat(via, tt.line, []string{`"stage":"` + stage + `"`})
			n.Await(tt.name+" is in the audit log, "+stage, func() bool { return lines(t, n, texts...) == 1 })
		}
	}
}

// If all calls are audited, so are the commands and queries that a node
// forwards for its callers.
func TestForwardedCallsAreAudited(t *testing.T) {
	w, f := auditing(t, "all")
	at := w.Node(w.Leader(1))
	f = f.as(w.Node((w.Leader(1) + 1) % 3).ID())
	e := entity("read-", 1, 3)
	f.forward(at, &peerv1.ForwardRequest_Item{
		Correlation: 1, Kind: peerv1.ForwardKind_QUERY, EntityType: e.Type, EntityId: e.ID, Name: "total", RemainingMicros: uint64(testkit.Patience.Microseconds()),
	})
	at.Await("a query is in the audit log", func() bool {
		return lines(t, at, `"via":"node:`+f.node+`"`, `"method":"/hostd.entity.v1.EntityService/QueryEntity","verb":"query"`, `"id":"`+e.ID+`"`) > 0
	})
}

// If a change is requested at a node that does not lead the metadata shard, it
// has lines in that node's audit log, and one pair of lines in the audit log of
// the node that makes the change.
func TestForwardedChangesAreAuditedTwice(t *testing.T) {
	w, _ := audited(t)
	leader := w.Leader(uint32(sharding.MetaShard))
	n, other := w.Node(leader), w.Node((leader+1)%3)
	if text, code := other.Run("setting", "put", "log.level", "debug", "--addr", other.API()); code != 0 {
		t.Fatalf("setting put: %d, %s", code, text)
	}
	n.Await("it is in the log of the leader", func() bool {
		return lines(t, n, `"via":"node:`+other.ID()+`"`, "key=log.level") == 2
	})
	if got := lines(t, other, "key=log.level"); got != 2 {
		t.Errorf("%d lines at the node that was asked", got)
	}
}

// If a shard needs the vote of a node that was marked as down, the node's next
// process may vote before it is admitted, because otherwise no node could admit
// it. Its current process stays out.
func TestDownedNodeWithNeededVoteReturns(t *testing.T) {
	w, _ := audited(t)
	first, put := w.Leader(0), 1
	if first == put {
		put = 2
	}
	lead, third := w.Node(first), 3-put-first
	if text, code := lead.Run("node", "down", w.Node(put).ID(), "--yes", "--addr", lead.API()); code != 0 {
		t.Fatalf("node down: %d, %s", code, text)
	}
	lead.Await("it knows that the node was put down", func() bool {
		return slices.ContainsFunc(w.Overview(first).GetMembers(), func(m *clusterv1.Member) bool { return m.GetNodeId() == w.Node(put).ID() && m.GetStatus() == "down" })
	})
	w.Kill(third)
	lead.Await("it says that nobody leads, with the vote of a start that was put down", func() bool {
		text, code := lead.Run("setting", "put", "a", "1", "--addr", lead.API(), "--timeout", "1s")
		return code != 0 && strings.Contains(text, "unavailable")
	})
	w.Restart(put)
	w.Await("another start is admitted", func() bool {
		return slices.ContainsFunc(w.Overview(first).GetMembers(), func(m *clusterv1.Member) bool {
			return m.GetNodeId() == w.Node(put).ID() && m.GetStatus() == "up" && m.GetReachable()
		})
	})
	if text, code := lead.Run("setting", "put", "a", "1", "--addr", lead.API()); code != 0 {
		t.Fatalf("with the vote of the next start: %d, %s", code, text)
	}
	w.Node(third).Start()
	w.AwaitSpread()
}
