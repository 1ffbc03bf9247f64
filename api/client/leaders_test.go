package client_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hostd/hostd/api/client"
	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/tests/support/rpctest"
)

// TestShardOf checks that client and servers compute the same shards.
func TestShardOf(t *testing.T) {
	for i := range 5000 {
		kind, id, n := fmt.Sprint("t", i%7), fmt.Sprint("id-é", i), uint32(1+i%1025)
		if got, want := client.ShardOf(kind, id, n), sharding.ShardOf(sharding.EntityID{Type: kind, ID: id}, n); got != uint32(want) {
			t.Fatalf("%s/%s of %d shards: %d, want %d", kind, id, n, got, want)
		}
	}
	if got := client.ShardOf("counter", "c1", 256); got != 225 {
		t.Errorf("counter/c1 of 256 shards: %d", got)
	}
}

// fleet runs nodes until the test ends, and checks that they leave no
// goroutine.
func fleet(t *testing.T, n int) *rpctest.Fleet {
	t.Helper()
	before := runtime.NumGoroutine()
	f, err := rpctest.NewFleet(n)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		f.Close()
		eventually(t, "goroutines to end", func() bool { return runtime.NumGoroutine() <= before })
	})
	return f
}

// spread distributes the shards over n nodes.
func spread(f *rpctest.Fleet, n int) {
	for s := sharding.ShardID(1); s <= rpctest.Shards; s++ {
		f.Move(s, sharding.NodeID(fmt.Sprint("n", 1+int(s)%n)))
	}
}

func strays(f *rpctest.Fleet, n int) (sum int64) {
	for i := range n {
		sum += f.Node(i + 1).Strays.Load()
	}
	return sum
}

// TestCommandsGoToLeaders checks that no command is forwarded once a client knows the
// leaders, and that the client learns from the answers when the leaders
// move.
func TestCommandsGoToLeaders(t *testing.T) {
	f := fleet(t, 3)
	f.Forwards = true
	spread(f, 3)
	c := dial(t, f.Node(1).Addr)
	send := func(n int) {
		t.Helper()
		for i := range n {
			id := fmt.Sprint("e", i)
			r, err := c.Send(t.Context(), add(id, 1))
			if err != nil || r.NodeID != string(f.Leader(sharding.ShardOf(counter(id), rpctest.Shards))) {
				t.Fatalf("%+v, %v", r, err)
			}
		}
	}
	send(4)
	learned := strays(f, 3)
	send(40)
	if now := strays(f, 3); now != learned {
		t.Errorf("%d commands went to a node that does not lead", now-learned)
	}
	spread(f, 2)
	send(40)
	moved := strays(f, 3)
	if moved-learned > rpctest.Shards {
		t.Errorf("%d commands found %d shards moved", moved-learned, rpctest.Shards)
	}
	for e, err := range c.List(t.Context(), &entityv1.ListEntitiesRequest{EntityType: rpctest.Counter}) {
		if err != nil {
			t.Fatal(err)
		}
		if d, err := c.Entity(t.Context(), rpctest.Counter, e.GetEntityId()); err != nil || d.GetNodeId() != string(f.Leader(sharding.ShardOf(counter(e.GetEntityId()), rpctest.Shards))) {
			t.Errorf("%s: %v, %v", e.GetEntityId(), d, err)
		}
	}
	// A client with GivenOnly uses only the given address.
	given, err := client.New([]string{f.Node(3).Addr}, client.Options{GivenOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer given.Close()
	before := f.Node(3).Strays.Load()
	for i := range 20 {
		if _, err := given.Send(t.Context(), add(fmt.Sprint("e", i), 1)); err != nil {
			t.Fatal(err)
		}
	}
	if now := f.Node(3).Strays.Load(); now-before != 20 { // the node leads no shard
		t.Errorf("%d of 20 went to the address", now-before)
	}
}

// counting counts calls by procedure.
type counting struct {
	next http.RoundTripper
	mu   sync.Mutex
	seen map[string]int
}

func (c *counting) RoundTrip(r *http.Request) (*http.Response, error) {
	c.mu.Lock()
	c.seen[r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]]++
	c.mu.Unlock()
	return c.next.RoundTrip(r)
}

// TestLeaderLookupsAreRateLimited checks that a shard without a leader does not
// make the client ask more often than its limit.
func TestLeaderLookupsAreRateLimited(t *testing.T) {
	f := fleet(t, 2)
	f.Move(1, "")
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	inner := &http.Transport{Protocols: protocols}
	defer inner.CloseIdleConnections()
	count := &counting{next: inner, seen: map[string]int{}}
	c, err := client.New([]string{f.Node(1).Addr}, client.Options{HTTPClient: &http.Client{Transport: count}, MinBackoff: time.Millisecond, MaxBackoff: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	id := ""
	for i := 0; id == ""; i++ {
		if s := fmt.Sprint("x", i); client.ShardOf(rpctest.Counter, s, rpctest.Shards) == 1 {
			id = s
		}
	}
	began := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if _, err := c.Send(ctx, add(id, 1)); !client.IsUnavailable(err) && !client.OutcomeUnknown(err) {
		t.Errorf("without a leader: %v", err)
	}
	atMost := int(time.Since(began)/(200*time.Millisecond)) + 2
	if count.seen["SendCommand"] < 2 || count.seen["ListShards"] > atMost {
		t.Errorf("calls: %v, at most %d refreshes", count.seen, atMost)
	}
}

// TestSendOverDyingNodes checks that commands succeed exactly once while
// leaders move and nodes that forward nothing die.
func TestSendOverDyingNodes(t *testing.T) {
	f := fleet(t, 3)
	spread(f, 3)
	c, err := client.New([]string{f.Node(1).Addr, f.Node(2).Addr}, client.Options{MinBackoff: time.Millisecond, MaxBackoff: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for i := range 60 {
		if i%10 == 5 {
			victim := sharding.NodeID(fmt.Sprint("n", 1+i/10%3))
			f.Node(1 + i/10%3).Kill()
			for s := sharding.ShardID(1); s <= rpctest.Shards; s++ {
				if f.Leader(s) == victim {
					f.Move(s, sharding.NodeID(fmt.Sprint("n", 1+(i/10+1)%3)))
				}
			}
		}
		if i%10 == 9 {
			if err := f.Node(1 + i/10%3).Start(); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := c.Send(t.Context(), add("a", i)); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Query(t.Context(), client.Query{EntityType: rpctest.Counter, EntityID: fmt.Sprint("q", i), Name: "total"}); err != nil {
			t.Fatal(err)
		}
	}
	if got := len(f.World.Commands(counter("a"))); got != 60 {
		t.Errorf("%d commands ran", got)
	}
}

// TestStreamOverMovingLeaders checks that the commands of a stream take effect
// once and in order while shards move between nodes or have no leader, and
// while nodes die.
//
// Two exceptions are allowed. First, if a node rejects a command just before it
// becomes the leader, a later command may run before the rejected one is
// retried. The rejected command then fails and never runs, or its outcome is
// unknown if it was sent to a node that died before. Second, a rejected command
// may run late if the node leads again, runs later commands, and dies before it
// can answer.
func TestStreamOverMovingLeaders(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	f := fleet(t, 3)
	spread(f, 3)
	c, err := client.New([]string{f.Node(1).Addr, f.Node(2).Addr, f.Node(3).Addr}, client.Options{MinBackoff: time.Millisecond, MaxBackoff: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	s := c.Stream(client.StreamOptions{Outstanding: 64})
	const entities, each = 6, 1200
	var answered, refused atomic.Int64
	var fails, unknown [entities][each]bool
	var senders sync.WaitGroup
	for e := range entities {
		senders.Go(func() {
			for i := range each {
				err := s.Send(t.Context(), add(fmt.Sprint("e", e), i), func(r client.Reply, err error) {
					fails[e][i], unknown[e][i] = client.IsUnavailable(err), client.OutcomeUnknown(err)
					if fails[e][i] || unknown[e][i] {
						refused.Add(1)
					} else if err != nil {
						t.Errorf("entity %d, command %d: %v", e, i, err)
					}
					answered.Add(1)
				})
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	steps, late := 0, 0
	for ; answered.Load() < entities*each && !t.Failed(); steps++ {
		goal := answered.Load() + 1 + rng.Int64N(entities*each/60)
		shard := sharding.ShardID(1 + rng.IntN(rpctest.Shards))
		to := 1 + rng.IntN(3)
		switch rng.IntN(4) {
		case 0:
			f.Move(shard, "")
			time.Sleep(time.Duration(rng.IntN(3)) * time.Millisecond)
			f.Move(shard, sharding.NodeID(fmt.Sprint("n", to)))
		case 1:
			f.Node(to).Kill()
			for s := sharding.ShardID(1); s <= rpctest.Shards; s++ {
				if f.Leader(s) == f.Node(to).ID {
					f.Move(s, sharding.NodeID(fmt.Sprint("n", 1+to%3)))
				}
			}
			if err := f.Node(to).Start(); err != nil {
				t.Fatal(err)
			}
		default:
			f.Move(shard, sharding.NodeID(fmt.Sprint("n", to)))
		}
		eventually(t, "progress", func() bool { return answered.Load() >= min(goal, entities*each) || t.Failed() })
	}
	senders.Wait()
	if err := s.Close(t.Context()); err != nil {
		t.Error(err)
	}
	c.Close()
	for e := range entities {
		ran, last := map[int]bool{}, -1
		for _, c := range f.World.Commands(counter(fmt.Sprint("e", e))) {
			var i int
			if _, err := fmt.Sscanf(c, `{"amount":%d}`, &i); err != nil || ran[i] {
				t.Fatalf("entity %d ran %s again: %v", e, c, err)
			}
			ran[i] = true
			if i < last {
				late++
			}
			last = max(last, i)
		}
		for i := range each {
			if !unknown[e][i] && ran[i] == fails[e][i] {
				t.Errorf("entity %d, command %d: it ran %v, failed %v", e, i, ran[i], fails[e][i])
			}
		}
	}
	// A node rejected a command, led again at once, and died before its answer
	// arrived.
	if late > entities*each/50 {
		t.Errorf("%d commands ran behind later ones", late)
	}
	if n := refused.Load(); n > entities*each/10 {
		t.Errorf("%d commands were refused", n)
	}
	t.Logf("%d steps, %d refused, %d late", steps, refused.Load(), late)
}

// TestStreamWaitsForNodes checks that commands that are sent while nodes start
// run once they have started, and fail at the deadline of their context if they
// do not.
func TestStreamWaitsForNodes(t *testing.T) {
	w := rpctest.New()
	_, addr := serve(t, w)
	s := dial(t, addr).Stream(client.StreamOptions{})
	defer s.Close(t.Context())
	w.SetTypesError(request.ErrNotReady)
	const n = 20
	answers := make(chan error, n)
	for i := range n {
		err := s.Send(t.Context(), add("a", i), func(_ client.Reply, err error) { answers <- err })
		if err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	failed := make(chan error, 1)
	if err := s.Send(ctx, add("b", 1), func(_ client.Reply, err error) { failed <- err }); err != nil {
		t.Fatal(err)
	}
	if err := <-failed; !client.IsUnavailable(err) {
		t.Errorf("past its deadline: %v", err)
	}
	select {
	case err := <-answers:
		t.Fatalf("answered by a node that is not ready: %v", err)
	default:
	}
	w.SetTypesError(nil)
	for range n {
		if err := <-answers; err != nil {
			t.Error(err)
		}
	}
	for i, payload := range w.Commands(counter("a")) {
		if payload != fmt.Sprintf(`{"amount":%d}`, i) {
			t.Fatalf("ran %s as number %d", payload, i)
		}
	}
	if err := s.Send(t.Context(), client.Command{EntityType: rpctest.Counter, EntityID: "a", Name: "fault"}, func(_ client.Reply, err error) { failed <- err }); err != nil {
		t.Fatal(err)
	}
	if err := <-failed; err == nil || errors.Is(err, client.ErrClosed) {
		t.Errorf("a fault: %v", err)
	}
}

// TestLeaderLookupsReturnChanges checks that a client that asks a node again
// receives only the changes, and still knows the leaders of the other shards.
func TestLeaderLookupsReturnChanges(t *testing.T) {
	f := fleet(t, 2)
	spread(f, 2)
	c, err := client.New([]string{f.Node(1).Addr}, client.Options{MinBackoff: time.Millisecond, MaxBackoff: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	send := func(shard sharding.ShardID) {
		t.Helper()
		for i := 0; ; i++ {
			if id := fmt.Sprint("x", i); client.ShardOf(rpctest.Counter, id, rpctest.Shards) == uint32(shard) {
				if _, err := c.Send(t.Context(), add(id, 1)); err != nil {
					t.Fatal(err)
				}
				return
			}
		}
	}
	for s := sharding.ShardID(1); s <= rpctest.Shards; s++ {
		send(s)
	}
	for i := range 6 { // each move makes the client ask again
		f.Move(sharding.ShardID(1), sharding.NodeID(fmt.Sprint("n", 1+i%2)))
		send(1)
		time.Sleep(210 * time.Millisecond)
		send(1)
	}
	strays := f.Node(1).Strays.Load() + f.Node(2).Strays.Load()
	for range 5 {
		for s := sharding.ShardID(1); s <= rpctest.Shards; s++ {
			send(s)
		}
	}
	if got := f.Node(1).Strays.Load() + f.Node(2).Strays.Load(); got != strays {
		t.Errorf("%d commands went to nodes that do not lead", got-strays)
	}
}
