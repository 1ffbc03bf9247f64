package virtualtime

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/api/client"
	clusterv1 "github.com/hostd/hostd/api/gen/hostd/cluster/v1"
	"github.com/hostd/hostd/api/gen/hostd/cluster/v1/clusterv1connect"
	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	"github.com/hostd/hostd/api/gen/hostd/entity/v1/entityv1connect"
	"github.com/hostd/hostd/host/network"
)

// saidBy limits the time in which a node must report that it cannot serve a
// call.
const saidBy = time.Second

// plain calls only one node and never retries, so that it receives that node's
// own answer.
type plain struct {
	w  *world
	at string
	entityv1connect.EntityServiceClient
	cluster clusterv1connect.ClusterServiceClient
}

func (w *world) plain(i int) *plain {
	transport := network.NewHTTPTransport(w.net.Host(hostOf(i)), network.HTTPOptions{})
	w.ends = append(w.ends, transport.CloseIdleConnections)
	over, base := &http.Client{Transport: transport}, "http://"+address(i)
	return &plain{w, string(id(i)), entityv1connect.NewEntityServiceClient(over, base), clusterv1connect.NewClusterServiceClient(over, base)}
}

// about returns calls of each kind for an entity and its shard.
func (p *plain) about(entity string) func(context.Context) map[string]func() error {
	return func(ctx context.Context) map[string]func() error { return p.calls(ctx, entity) }
}

func (p *plain) calls(ctx context.Context, entity string) map[string]func() error {
	one := &entityv1.SendCommandRequest_Data{Data: []byte(`{"amount":1}`)}
	return map[string]func() error{
		"Send": func() error {
			_, err := p.SendCommand(ctx, connect.NewRequest(&entityv1.SendCommandRequest{EntityType: "counter", EntityId: entity, Command: "add", Payload: one}))
			return err
		},
		"Query": func() error {
			_, err := p.QueryEntity(ctx, connect.NewRequest(&entityv1.QueryEntityRequest{EntityType: "counter", EntityId: entity, Query: "total"}))
			return err
		},
		"GetEntity": func() error {
			_, err := p.GetEntity(ctx, connect.NewRequest(&entityv1.GetEntityRequest{EntityType: "counter", EntityId: entity}))
			return err
		},
		"GetState": func() error {
			_, err := p.GetState(ctx, connect.NewRequest(&entityv1.GetStateRequest{EntityType: "counter", EntityId: entity}))
			return err
		},
		"Delete": func() error {
			_, err := p.DeleteEntity(ctx, connect.NewRequest(&entityv1.DeleteEntityRequest{EntityType: "counter", EntityId: entity}))
			return err
		},
		"ReadEvents": func() error {
			events, err := p.ReadEvents(ctx, connect.NewRequest(&entityv1.ReadEventsRequest{EntityType: "counter", EntityId: entity}))
			if err != nil {
				return err
			}
			defer events.Close()
			for events.Receive() {
			}
			return events.Err()
		},
	}
}

// ofMetadata returns calls that need a majority of the metadata shard.
func (p *plain) ofMetadata(ctx context.Context) map[string]func() error {
	return map[string]func() error{
		"PutSetting": func() error {
			_, err := p.cluster.PutSetting(ctx, connect.NewRequest(&clusterv1.PutSettingRequest{Key: "k", Value: "v"}))
			return err
		},
		"Query of an unknown type": func() error {
			_, err := p.QueryEntity(ctx, connect.NewRequest(&entityv1.QueryEntityRequest{EntityType: "nothing", EntityId: "e", Query: "total"}))
			return err
		},
	}
}

// refused makes every call, and checks that each of them soon fails with
// unavailable.
func (p *plain) refused(calls func(context.Context) map[string]func() error) {
	p.w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for name, call := range calls(ctx) {
		began := time.Now()
		err := call()
		if took := time.Since(began); connect.CodeOf(err) != connect.CodeUnavailable || took > saidBy {
			p.w.t.Errorf("%s says to %s after %v: %v", p.at, name, took, err)
		}
	}
}

// entityOf returns the ID of an entity in a shard.
func (w *world) entityOf(shard uint32) string {
	for n := 0; ; n++ {
		if name := nameOf(n); client.ShardOf("counter", name, w.opts.shards) == shard {
			return name
		}
	}
}

// majorityBesideMetadata returns a shard, its voters, and two nodes that are a
// majority of the shard's voters but not of the metadata shard's voters.
func (w *world) majorityBesideMetadata() (shard uint32, voters []string, nodes []int) {
	w.t.Helper()
	shards := w.shards(1)
	for _, s := range shards[1:] {
		v := s.GetVoters()
		for _, two := range [][]string{{v[0], v[1]}, {v[0], v[2]}, {v[1], v[2]}} {
			if !slices.Contains(shards[0].GetVoters(), two[0]) || !slices.Contains(shards[0].GetVoters(), two[1]) {
				return s.GetShardId(), v, []int{w.place(two[0]), w.place(two[1])}
			}
		}
	}
	w.t.Fatal("every shard has the voters of the metadata")
	return 0, nil, nil
}

// Two of five nodes die, and with them the majority of some shards. Every node,
// including those without a replica of such a shard, must soon report the
// missing majority and name the missing nodes.
func TestShardWithoutMajorityRejectsRequestsOnEveryNode(t *testing.T) {
	run(t, options{nodes: 5, shards: 6}, func(t *testing.T, w *world) {
		w.found()
		w.push()
		lost, voters, dead := w.majorityBesideMetadata()
		w.kill(dead...)
		time.Sleep(5 * time.Second)
		entity := w.entityOf(lost)
		without := 0
		for i := range w.nodes {
			if !slices.Contains(voters, string(id(i))) {
				without++
			}
			here := w.plain(i)
			here.refused(here.about(entity))
			_, err := w.plain(i).QueryEntity(t.Context(), connect.NewRequest(&entityv1.QueryEntityRequest{EntityType: "counter", EntityId: entity, Query: "total"}))
			if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("cannot reach %s", id(dead[0]))) && !strings.Contains(err.Error(), fmt.Sprintf("cannot reach %s", id(dead[1]))) {
				t.Errorf("%s gives as the reason %v", id(i), err)
			}
		}
		again := w.others(0)[0]
		w.stop(again)
		w.start(again)
		for i := range w.nodes {
			w.until(fmt.Sprintf("%s is ready without shard %d", id(i), lost), w.nodes[i].Ready)
		}
		if without != 2 {
			t.Errorf("%d nodes have no replica of shard %d, which has %v", without, lost, voters)
		}
		w.start(dead...)
		w.until("every shard is led", func() bool { return w.led(again) })
		for i := range w.nodes {
			if _, err := w.beside(i).Query(t.Context(), total(entity)); err != nil {
				t.Errorf("%s, healed: %v", id(i), err)
			}
		}
	})
}

// Without a majority of the nodes, metadata can be neither changed nor read
// linearizably. The last node must soon report that the majority is missing.
func TestMetadataWithoutMajorityRejectsRequests(t *testing.T) {
	run(t, options{nodes: 3, shards: 2}, func(t *testing.T, w *world) {
		w.found()
		w.push()
		w.kill(2, 3)
		time.Sleep(5 * time.Second)
		here := w.plain(1)
		here.refused(here.ofMetadata)
		w.start(2, 3)
		w.until("every shard is led", func() bool { return w.led(1) })
	})
}

// One of three links is cut. Each of its ends still has a majority together
// with the third node. If the other end leads a shard, it must soon report that
// it cannot reach the shard's leader.
func TestCutLinkIsReported(t *testing.T) {
	run(t, options{nodes: 3, shards: 6}, func(t *testing.T, w *world) {
		w.found()
		w.push()
		ends := []int{w.leader(1, 1)}
		ends = append(ends, w.others(ends[0])[0])
		w.net.Partition([]string{hostOf(ends[0])}, []string{hostOf(ends[1])})
		time.Sleep(5 * time.Second)
		third := 6 - ends[0] - ends[1]
		refused := 0
		for _, s := range w.shards(third) {
			for k, end := range ends {
				if s.GetShardId() == 0 || s.GetLeader() != string(id(ends[1-k])) {
					continue
				}
				refused++
				here := w.plain(end)
				here.refused(here.about(w.entityOf(s.GetShardId())))
			}
		}
		if refused == 0 {
			t.Error("neither end leads a shard any more")
		}
		w.net.HealAll()
		w.settled()
	})
}

// Two nodes that were a majority of a shard's voters come back with empty
// disks. They are reachable, but the shard has no leader. Every node must
// report that to callers and operators.
func TestLostMajorityIsReported(t *testing.T) {
	run(t, options{nodes: 5, shards: 8}, func(t *testing.T, w *world) {
		w.found()
		w.push()
		shards := w.shards(1)
		shard, lost := uint32(0), []string(nil)
		for _, s := range shards[1:] {
			for i, a := range s.GetVoters() {
				for _, b := range s.GetVoters()[:i] {
					if meta := shards[0].GetVoters(); !slices.Contains(meta, a) || !slices.Contains(meta, b) {
						shard, lost = s.GetShardId(), []string{a, b}
					}
				}
			}
		}
		if lost == nil {
			t.Fatalf("every shard has the voters of the metadata: %v", shards)
		}
		places := []int{w.place(lost[0]), w.place(lost[1])}
		w.kill(places...)
		w.forget(places[0])
		w.forget(places[1])
		w.start(places...)
		says := fmt.Sprintf("shard %d has lost a majority of its voters with the disks of", shard)
		for _, i := range w.all() {
			w.until("it says that a majority is lost", func() bool {
				s := w.shards(i)[shard]
				return len(s.GetLostVoters()) > len(s.GetVoters()) && s.GetLeader() == ""
			})
			w.until("callers are told", func() bool {
				for n := range 64 {
					_, err := w.beside(i).Send(w.soon(), add(nameOf(n), 1))
					if client.CodeOf(err) == connect.CodeUnavailable && strings.Contains(err.Error(), says) {
						return true
					}
				}
				return false
			})
		}
		w.until("the orders say so", func() bool {
			return slices.ContainsFunc(w.overview(1).GetPendingOperations(), func(o *clusterv1.PendingOperation) bool {
				return o.GetKind() == "replication" && strings.Contains(o.GetReason(), "lost a majority of its voters")
			})
		})
	})
}
