// Package messages tests messages between entities with the real program: nodes
// are killed and leaderships transferred while entities send, and each message
// must take effect once and in order. It never runs a node in the test's
// process; the processes that it starts end with the test.
package messages

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/api/client"
	"github.com/hostd/hostd/tests/support/testkit"
)

var (
	sendCount     = flag.Int("sends", 2_500, "how many sends are made")
	transferCount = flag.Int("transfers", 150, "how many transfers are made")
	faults        = flag.Int("faults", 2, "how many nodes are killed, and shards moved for each")
	seedFlag      = flag.Uint64("seed", 0, "of the faults; 0 draws one")
)

const (
	nodes  = 3
	shards = 6
)

func TestMain(m *testing.M) { os.Exit(testkit.Main(m)) }

// bed is a cluster under load and faults.
type bed struct {
	t       *testing.T
	cluster *testkit.Cluster
	c       *client.Client
	rng     *rand.Rand
	moved   int
	killed  int
	unsure  atomic.Int64 // number of commands with an unknown outcome
}

func newBed(t *testing.T) *bed {
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("seed %d", seed)
	b := &bed{t: t, rng: rand.New(rand.NewPCG(seed, 1))}
	b.cluster = testkit.StartCluster(t, nodes, testkit.ClusterOptions{Shards: shards, Flags: []string{"--admin", "full"}})
	b.c = b.cluster.Client(client.Options{Timeout: testkit.Patience, MaxBackoff: 50 * time.Millisecond})
	return b
}

// send retries a command until its outcome is known. It treats too many pending
// messages as a reason to retry. After errUnsure only the entity's state shows
// the outcome.
func (b *bed) send(entityType, id, command string, payload any) error {
	data, err := json.Marshal(payload)
	if err != nil {
		return err
	}
	cmd := client.Command{EntityType: entityType, EntityID: id, Name: command, Data: data, ID: client.NewCommandID()}
	ctx, cancel := context.WithTimeout(b.t.Context(), 4*testkit.Patience)
	defer cancel()
	for began := time.Now(); ; cmd.FirstTried = began {
		_, err := b.c.Send(ctx, cmd)
		var public *connect.Error
		if client.CodeOf(err) == connect.CodeAborted {
			b.unsure.Add(1)
			return fmt.Errorf("%w: %w", errUnsure, err)
		}
		if err == nil || ctx.Err() != nil || errors.As(err, &public) && !slices.Contains([]connect.Code{
			connect.CodeResourceExhausted, connect.CodeUnavailable, connect.CodeDeadlineExceeded}, public.Code()) {
			return err
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// errUnsure means that the entity no longer knows whether an earlier attempt
// took effect.
var errUnsure = errors.New("the command may have taken effect")

func query[T any](b *bed, entityType, id, name string) (out T) {
	b.t.Helper()
	r, err := b.c.Query(b.t.Context(), client.Query{EntityType: entityType, EntityID: id, Name: name})
	if err == nil {
		err = json.Unmarshal(r.Data, &out)
	}
	if err != nil {
		b.t.Fatalf("query %s/%s: %v", entityType, id, err)
	}
	return out
}

// disturb kills nodes and moves shards, until the intended number of
// disturbances is reached and the load has ended. It restarts the killed nodes.
func (b *bed) disturb(over <-chan struct{}) {
	for b.killed < *faults {
		time.Sleep(time.Duration(300+b.rng.IntN(500)) * time.Millisecond)
		b.move()
		time.Sleep(time.Duration(b.rng.IntN(200)) * time.Millisecond)
		victim := b.rng.IntN(nodes)
		b.cluster.Kill(victim)
		b.killed++
		time.Sleep(time.Duration(b.rng.IntN(1500)) * time.Millisecond)
		b.cluster.Node(victim).Start()
	}
	<-over
}

// move transfers a random shard to another node, if that is currently possible.
func (b *bed) move() {
	shard := uint32(1 + b.rng.IntN(shards))
	ctx, cancel := context.WithTimeout(b.t.Context(), 5*time.Second)
	defer cancel()
	if b.c.MoveShard(ctx, shard, b.cluster.Node(b.rng.IntN(nodes)).ID()) == nil {
		b.moved++
	}
}

// restartAll kills every node at once and starts them all again.
func (b *bed) restartAll() {
	b.cluster.KillAll()
	b.cluster.Start()
}

// verify stops all nodes and verifies their data.
func (b *bed) verify() {
	b.cluster.StopAll()
	for _, n := range b.cluster.Nodes() {
		n.MustVerify()
	}
}

type sourceState struct {
	Sent     map[string]int64 `json:"sent"`
	Answers  int64            `json:"answers"`
	Disorder int64            `json:"disorder"`
}

type sinkState struct {
	Heard    map[string]int64 `json:"heard"`
	Disorder int64            `json:"disorder"`
}

// TestMessagesSurviveKills kills nodes and moves shards, and checks that each
// message takes effect once and in the order of its channel, and that every
// reply arrives.
func TestMessagesSurviveKills(t *testing.T) {
	t.Parallel()
	const sources, sinks, workers = 12, 20, 6
	b := newBed(t)
	if _, err := b.c.Upload(t.Context(), testkit.BuildGuest(t, "tests/e2e/messages/guest"), true); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	var made atomic.Int64
	var load sync.WaitGroup
	for w := range workers {
		rng := rand.New(rand.NewPCG(uint64(w), b.rng.Uint64()))
		load.Go(func() {
			for made.Load() < int64(*sendCount) {
				n, each := 1+rng.IntN(8), 1+rng.IntN(3)
				made.Add(int64(n * each))
				if err := b.send("source", strconv.Itoa(rng.IntN(sources)), "emit",
					map[string]any{"first": rng.IntN(sinks - n + 1), "sinks": n, "each": each, "answer": rng.IntN(3) == 0}); err != nil && !errors.Is(err, errUnsure) {
					t.Errorf("emit: %v", err)
					return
				}
			}
		})
	}
	over := make(chan struct{})
	go func() { load.Wait(); close(over) }()
	b.disturb(over)
	b.restartAll()
	loaded := time.Since(began)
	total := awaitSends(b, sources, sinks)
	t.Logf("%d sends, each once and in order; %d commands refused because they may have been forgotten; %d kills, %d moves, 1 restart of all; load %s, all arrived after %s",
		total, b.unsure.Load(), b.killed, b.moved, loaded.Round(time.Millisecond), time.Since(began).Round(time.Millisecond))
	b.verify()
}

// awaitSends waits until the sinks have received all messages of the sources,
// and checks them.
func awaitSends(b *bed, sources, sinks int) (total int64) {
	t := b.t
	want := map[string]map[string]int64{}
	for i := range sources {
		id := strconv.Itoa(i)
		want[id] = query[sourceState](b, "source", id, "state").Sent
		for _, n := range want[id] {
			total += n
		}
	}
	b.cluster.Await("every send has arrived", func() bool {
		var heard int64
		for i := range sinks {
			s := query[sinkState](b, "sink", strconv.Itoa(i), "state")
			if s.Disorder != 0 {
				t.Fatalf("sink %d has heard %d sends out of order", i, s.Disorder)
			}
			for from, n := range s.Heard {
				if n > want[from][strconv.Itoa(i)] {
					t.Fatalf("sink %d has heard %d sends of %s, which sent %d", i, n, from, want[from][strconv.Itoa(i)])
				}
				heard += n
			}
		}
		return heard == total
	})
	b.cluster.Await("every send is acknowledged", func() bool {
		for i := range sources {
			info, err := b.c.Entity(t.Context(), "source", strconv.Itoa(i))
			if err != nil {
				t.Fatal(err)
			}
			if s := query[sourceState](b, "source", strconv.Itoa(i), "state"); info.GetPendingMessages() != 0 {
				return false
			} else if s.Disorder != 0 {
				t.Fatalf("source %d got %d wrong answers", i, s.Disorder)
			}
		}
		return true
	})
	return total
}

// TestTransfersPreserveTotal interrupts transfers between accounts, lets some
// be rejected and some time out, and checks that the total stays the same and
// that each transfer ends.
func TestTransfersPreserveTotal(t *testing.T) {
	testkit.Long(t, "long")
	t.Parallel()
	const accounts, start, workers = 16, 100, 8
	b := newBed(t)
	b.cluster.Push("account", "transfer")
	for i := range accounts {
		id := "a" + strconv.Itoa(i)
		if i > 0 { // the first account is never opened
			if err := b.send("account", id, "open", nil); err != nil {
				t.Fatal(err)
			}
		}
		if err := b.send("account", id, "deposit", map[string]any{"amount": start}); err != nil {
			t.Fatal(err)
		}
	}
	began := time.Now()
	var next atomic.Int64
	var unsure sync.Map // numbers of transfers that may not have started
	var load sync.WaitGroup
	for w := range workers {
		rng := rand.New(rand.NewPCG(uint64(w), b.rng.Uint64()))
		load.Go(func() {
			for n := next.Add(1); n <= int64(*transferCount); n = next.Add(1) {
				from := rng.IntN(accounts)
				to := (from + 1 + rng.IntN(accounts-1)) % accounts
				timeout := []int{0, 0, 50, 2000}[rng.IntN(4)]
				if err := b.send("transfer", fmt.Sprintf("t%d", n), "start", map[string]any{
					"from": "a" + strconv.Itoa(from), "to": "a" + strconv.Itoa(to), "amount": 1 + rng.IntN(30), "timeoutMs": timeout}); errors.Is(err, errUnsure) {
					unsure.Store(int(n), true)
				} else if err != nil {
					t.Errorf("start: %v", err)
					return
				}
			}
		})
	}
	over := make(chan struct{})
	go func() { load.Wait(); close(over) }()
	b.disturb(over)
	loaded := time.Since(began)
	ended := map[string]int{}
	type status struct {
		State    string `json:"state"`
		TimedOut bool   `json:"timedOut"`
	}
	for n := 1; n <= *transferCount; n++ {
		var s status
		b.cluster.Await("the transfer ends", func() bool {
			s = query[status](b, "transfer", fmt.Sprintf("t%d", n), "status")
			if _, ok := unsure.Load(n); ok && s == (status{}) {
				s.State = "not begun"
				return true
			}
			return s.State == "done" || s.State == "failed" || s.State == "refunded"
		})
		ended[s.State]++
		if s.TimedOut {
			ended["timed out"]++
		}
	}
	sum := int64(0)
	for i := range accounts {
		sum += query[struct {
			Balance int64 `json:"balance"`
		}](b, "account", "a"+strconv.Itoa(i), "balance").Balance
	}
	if sum != accounts*start {
		t.Errorf("%d in all accounts, want %d", sum, accounts*start)
	}
	t.Logf("%d transfers %v; %d kills, %d moves; load %s, all ended after %s", *transferCount, ended, b.killed, b.moved,
		loaded.Round(time.Millisecond), time.Since(began).Round(time.Millisecond))
	b.verify()
}
