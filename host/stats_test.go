package host_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/api/client"
	clusterv1 "github.com/hostd/hostd/api/gen/hostd/cluster/v1"
	"github.com/hostd/hostd/api/gen/hostd/cluster/v1/clusterv1connect"
	"github.com/hostd/hostd/tests/support/testkit/guest"
)

// TestStatsReportAllNodes: every node reports the load of all nodes, in total
// and by type.
func TestStatsReportAllNodes(t *testing.T) {
	nodes := startCluster(t, 3, 6)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	c := dialNode(t, nodes[0])
	refusal := abi.AppendFrame(nil, abi.OutReject, "\x02\x00no it is not")
	for _, m := range []guest.Module{
		{Good: "good", Bad: "bad", Handle: guest.Unreachable},
		{Bad: "no", Handle: guest.Span(guest.FramesAt, uint32(len(refusal))), Frames: refusal},
	} {
		if _, err := c.Upload(ctx, m.Build(), true); err != nil {
			t.Fatal(err)
		}
	}
	for _, n := range nodes {
		in, err := clusterv1connect.NewClusterServiceClient(http.DefaultClient, "http://"+n.Addr()).WatchStats(ctx, connect.NewRequest(&clusterv1.WatchStatsRequest{Interval: durationpb.New(time.Second)}))
		if err != nil {
			t.Fatal(err)
		}
		rates, heard, sent := map[string]*clusterv1.TypeStats{}, map[string]bool{}, 0
		for len(heard) < 3 || rates["good"].GetEventsPerSecond() == 0 || rates["no"].GetRejectionsPerSecond() == 0 || rates["bad"].GetFaultsPerSecond() == 0 {
			for range 20 {
				sent++
				for _, entityType := range []string{"good", "no", "bad"} {
					if _, err := c.Send(ctx, client.Command{EntityType: entityType, EntityID: fmt.Sprint(n.Addr(), sent), Name: "do"}); err != nil && entityType == "good" {
						t.Fatal(err)
					}
				}
			}
			if !in.Receive() {
				t.Fatal(in.Err())
			}
			m := in.Msg()
			if len(m.GetMissingNodes()) > 0 {
				continue // the node may have been too busy
			}
			if s := m.GetNode(); m.GetPeriod().AsDuration() < 800*time.Millisecond || s.GetMemoryBytes() == 0 || s.GetDiskFreeBytes() == 0 || s.GetProcessors() == 0 {
				t.Fatalf("%v", m)
			}
			heard[m.GetNodeId()] = true
			for _, s := range m.GetTypes() {
				if was := rates[s.GetEntityType()]; was.GetCommandsPerSecond() <= s.GetCommandsPerSecond() {
					rates[s.GetEntityType()] = s
				}
			}
		}
		good, no, bad := rates["good"], rates["no"], rates["bad"]
		if good.GetRejectionsPerSecond() > 0 || good.GetFaultsPerSecond() > 0 || no.GetEventsPerSecond() > 0 || no.GetFaultsPerSecond() > 0 || bad.GetEventsPerSecond() > 0 || bad.GetRejectionsPerSecond() > 0 {
			t.Errorf("what one type does is another's:\n%v\n%v\n%v", good, no, bad)
		}
		if q := good.GetQueue(); q.GetP99().AsDuration() <= 0 || q.GetP50().AsDuration() > q.GetP99().AsDuration() || good.GetGuest() == nil || good.GetCommit() == nil || good.GetFuelPerSecond() == 0 {
			t.Errorf("%v", good)
		}
		in.Close()
	}
}

// TestStatsReportedOnce: each node reports its load once, and the call ends.
func TestStatsReportedOnce(t *testing.T) {
	nodes := startCluster(t, 3, 6)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	service := clusterv1connect.NewClusterServiceClient(http.DefaultClient, "http://"+nodes[2].Addr())
	in, err := service.WatchStats(ctx, connect.NewRequest(&clusterv1.WatchStatsRequest{Interval: durationpb.New(time.Second), Once: true}))
	if err != nil {
		t.Fatal(err)
	}
	heard, led := map[string]int{}, uint32(0)
	for in.Receive() {
		heard[in.Msg().GetNodeId()]++
		led += in.Msg().GetNode().GetShardsLed()
	}
	if err := in.Err(); err != nil || len(heard) != 3 || heard["n1"]+heard["n2"]+heard["n3"] != 3 || led == 0 {
		t.Errorf("%v, %d shards are led, %v", heard, led, err)
	}
	for _, interval := range []time.Duration{time.Millisecond, 999 * time.Millisecond, 60_001 * time.Millisecond} {
		in, err := service.WatchStats(ctx, connect.NewRequest(&clusterv1.WatchStatsRequest{Interval: durationpb.New(interval)}))
		if err == nil {
			in.Receive()
			err = in.Err()
		}
		if connect.CodeOf(err) != connect.CodeInvalidArgument {
			t.Errorf("an interval of %d ms: %v", interval, err)
		}
	}
}
