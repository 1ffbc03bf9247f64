package clusterapi

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	clusterv1 "github.com/hostd/hostd/api/gen/hostd/cluster/v1"
	"github.com/hostd/hostd/host/edge/page"
	"github.com/hostd/hostd/sharding"
)

// shelf is a fake cluster. The test sets its shards and the error that it
// returns, and reads how often it was called.
type shelf struct {
	shards []*clusterv1.Shard
	lists  int
	err    error
}

func (s *shelf) service() *shardWatch {
	return &shardWatch{
		NodeID: "n1",
		Shards: func(context.Context) (out []*clusterv1.Shard, _ error) {
			s.lists++
			for _, sh := range s.shards {
				out = append(out, proto.Clone(sh).(*clusterv1.Shard))
			}
			return out, s.err
		},
		Leaders: func() (out []sharding.NodeID) {
			for _, sh := range s.shards {
				out = append(out, sharding.NodeID(sh.GetLeader()))
			}
			return out
		},
	}
}

// TestWatchShardsSendsChanges checks that all shards are sent first, and
// then only changed shards: a new leader immediately, other changes within a
// second, and sizes every ten seconds.
func TestWatchShardsSendsChanges(t *testing.T) {
	s := &shelf{}
	for i := range uint32(4) {
		s.shards = append(s.shards, &clusterv1.Shard{ShardId: i, Leader: "n1", Term: 1, Voters: []string{"n1", "n2"}})
	}
	service, sent, now := s.service(), &seen{}, time.Unix(1000, 0)
	look := func(after time.Duration) string {
		t.Helper()
		now = now.Add(after)
		m, err := service.look(t.Context(), sent, now)
		if err != nil {
			t.Fatal(err)
		}
		if m == nil {
			return ""
		}
		text := ""
		if !m.GetChanges() {
			text = "all:"
		}
		for _, sh := range m.GetShards() {
			text += fmt.Sprintf(" %d %s", sh.GetShardId(), sh.GetLeader())
		}
		return text
	}
	expect := func(what, got, want string) {
		t.Helper()
		if got != want {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
	expect("the first", look(0), "all: 0 n1 1 n1 2 n1 3 n1")
	expect("nothing", look(lookEvery), "")
	if s.lists != 1 {
		t.Errorf("%d lists for a look at leaders", s.lists)
	}
	s.shards[2].Leader = "n2"
	expect("another leader", look(lookEvery), " 2 n2")
	expect("nothing since", look(lookEvery), "")
	s.shards[1].Voters = []string{"n1", "n3"}
	expect("other voters, at once", look(lookEvery), "")
	expect("other voters, within a second", look(listEvery), " 1 n1")
	s.shards[3].Stopped = []*clusterv1.StoppedReplica{{NodeId: "n2", Reason: "damage"}}
	expect("a replica that stopped", look(listEvery), " 3 n1")
	s.shards[0].EntityCount, s.shards[3].AppliedIndex = 5, 7
	expect("what they hold, within a second", look(listEvery), "")
	expect("what they hold, in ten", look(countEvery), " 0 n1 3 n1")
	expect("what they hold, told", look(countEvery), "")
	s.err = errors.New("no")
	if _, err := service.look(t.Context(), sent, now.Add(countEvery)); err == nil {
		t.Error("a node that cannot tell says nothing of it")
	}
}

// TestWatchShardsSplitsFirstMessage checks a cluster whose shards do not fit
// into one message. Each message ends as a page does, all messages but the
// first are marked as changes, and together they have every shard once.
func TestWatchShardsSplitsFirstMessage(t *testing.T) {
	name := func(i int) string { return fmt.Sprintf("%064d", i) }
	whole := &clusterv1.WatchShardsResponse{NodeId: "n1"}
	for i := range uint32(4096) {
		s := &clusterv1.Shard{ShardId: i, Leader: name(1)}
		for r := range 9 {
			s.Voters = append(s.Voters, name(r))
			s.Stopped = append(s.Stopped, &clusterv1.StoppedReplica{NodeId: name(r), Reason: "unsupported"})
		}
		whole.Shards = append(whole.Shards, s)
	}
	for _, changes := range []bool{false, true} {
		whole.Changes = changes
		next, messages := uint32(0), 0
		for m := range shardParts(whole) {
			if proto.Size(m) > page.Bytes+64<<10 || m.GetChanges() != (changes || messages > 0) || m.GetNodeId() != "n1" {
				t.Errorf("message %d: %d bytes, changes %v", messages, proto.Size(m), m.GetChanges())
			}
			for _, s := range m.GetShards() {
				if s.GetShardId() != next {
					t.Fatalf("shard %d after %d", s.GetShardId(), next)
				}
				next++
			}
			messages++
		}
		if next != 4096 || messages < 2 {
			t.Errorf("%d shards in %d messages", next, messages)
		}
	}
	for range shardParts(nil) {
		t.Error("a message of nothing")
	}
}
