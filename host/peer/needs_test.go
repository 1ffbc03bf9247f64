package peer

import (
	"slices"
	"testing"

	peerv1 "github.com/hostd/hostd/api/gen/hostd/peer/v1"
	"github.com/hostd/hostd/api/gen/hostd/peer/v1/peerv1connect"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Every procedure between nodes has a line in needs, and only a few are served
// to nodes that are not members.
func TestEveryProcedureHasItsNeed(t *testing.T) {
	known, open := map[string]bool{}, []string{}
	for _, file := range []protoreflect.FileDescriptor{
		peerv1.File_hostd_peer_v1_peer_proto, peerv1.File_hostd_peer_v1_forward_proto, peerv1.File_hostd_peer_v1_transfer_proto,
	} {
		for i := range file.Services().Len() {
			s := file.Services().Get(i)
			for k := range s.Methods().Len() {
				name := "/" + string(s.FullName()) + "/" + string(s.Methods().Get(k).Name())
				known[name] = true
				need, listed := needs[name]
				if !listed {
					t.Errorf("%s does not say what it needs", name)
				}
				if need != needMember {
					open = append(open, name)
				}
			}
		}
	}
	for name := range needs {
		if !known[name] {
			t.Errorf("%s is no procedure", name)
		}
	}
	want := []string{
		peerv1connect.PeerServiceLinkProcedure, peerv1connect.PeerServiceProbeProcedure, peerv1connect.PeerServicePledgeProcedure,
		peerv1connect.PeerServiceVouchProcedure, peerv1connect.PeerServiceJoinProcedure, peerv1connect.PeerServiceRenewProcedure, peerv1connect.PeerServiceSendSnapshotProcedure,
	}
	slices.Sort(open)
	slices.Sort(want)
	if !slices.Equal(open, want) {
		t.Errorf("nodes that are no members are served %q, and should be served %q", open, want)
	}
	if needs["/hostd.hop/hostd.cluster.v1.ClusterService/PutSetting"] != needMember {
		t.Error("calls of clients are passed on by nodes that are no members")
	}
}
