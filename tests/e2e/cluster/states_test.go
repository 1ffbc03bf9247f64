package cluster

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/api/client"
	"github.com/hostd/hostd/host/guest"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/store"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/tests/support/testkit"
)

var (
	stateEntities = flag.Int("states.entities", 60, "entities of the test that compares states")
	stateEvents   = flag.Int("states.events", 45, "events of each of them")
	stateSample   = flag.Int("states.sample", 20, "entities of each replica that are interpreted, too")
)

// TestStatesAreReplays checks, on every replica, that the state of each entity
// replayed from its first event equals its snapshots, equals its newest
// snapshot with the later events applied, and equals the entity's answer while
// it ran. For a sample of the entities, the same must hold if the guest is
// interpreted instead of compiled.
func TestStatesAreReplays(t *testing.T) {
	testkit.Long(t, "long")
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 1))
	cluster := testkit.StartCluster(t, 3, testkit.ClusterOptions{})
	ctx, cancel := context.WithTimeout(t.Context(), 10*testkit.Patience+time.Duration(*stateEntities**stateEvents)*time.Millisecond)
	defer cancel()
	wasm := testkit.BuildGuest(t, "tests/e2e/entities/guest")
	c := cluster.Client(client.Options{Timeout: testkit.Patience})
	if _, err := c.Upload(ctx, wasm, true); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	sendEvents(t, ctx, c, rnd)
	lived := map[string][]byte{}
	for i := range *stateEntities {
		name := strconv.Itoa(i)
		answer, err := c.Query(ctx, client.Query{EntityType: "alarm", EntityID: name, Name: "state"})
		if err != nil {
			t.Fatal(err)
		}
		lived[name] = answer.Data
	}
	awaitLevel(cluster)
	cluster.StopAll()
	t.Logf("%d events of %d entities sent and their states asked for in %s", *stateEntities**stateEvents, *stateEntities, time.Since(began).Round(time.Second))

	compiled, interpreted := newReplayer(t, wasm, guest.Options{}), newReplayer(t, wasm, guest.Options{Interpreter: true})
	first := map[string][]byte{}
	for at, n := range cluster.Nodes() {
		entities, snapshots, sampled := 0, 0, 0
		eachHistory(t, n.DataDir(), func(id sharding.EntityID, l *lifetime) {
			entities++
			if len(l.events) != *stateEvents {
				t.Errorf("%v on %s has %d events, %d were sent", id, n.ID(), len(l.events), *stateEvents)
			}
			replayers := []*replayer{compiled}
			if sampled < *stateSample && rnd.IntN(*stateEntities) < 2**stateSample {
				sampled++
				replayers = append(replayers, interpreted)
			}
			for _, r := range replayers {
				state, answer := r.check(n.ID(), id, l)
				if first[id.ID] == nil {
					first[id.ID] = state
				}
				if snapshots += len(l.snaps); !bytes.Equal(state, first[id.ID]) {
					t.Errorf("%v on %s is %s, elsewhere %s", id, n.ID(), state, first[id.ID])
				}
				if !sameJSON(answer, lived[id.ID]) {
					t.Errorf("%v on %s answers %s when it is replayed, %s when it lived", id, n.ID(), answer, lived[id.ID])
				}
			}
		})
		t.Logf("%s: %d entities, %d comparisons with snapshots, %d entities interpreted too", n.ID(), entities, snapshots, sampled)
		if entities != *stateEntities || sampled == 0 || *stateEvents > 20 && snapshots < entities {
			t.Errorf("replica %d shows %d of %d entities, %d snapshots, a sample of %d", at, entities, *stateEntities, snapshots, sampled)
		}
	}
}

// sendEvents gives every entity its events, alternating between entities. It
// resends commands that time out on a busy machine.
func sendEvents(t *testing.T, ctx context.Context, c *client.Client, rnd *rand.Rand) {
	t.Helper()
	s := c.Stream(client.StreamOptions{Outstanding: 1024})
	var mu sync.Mutex
	var failed error
	var again []client.Command
	for range *stateEvents {
		for i := range *stateEntities {
			cmd := client.Command{EntityType: "alarm", EntityID: strconv.Itoa(i), Name: "add", ID: client.NewCommandID(),
				Data: fmt.Appendf(nil, `{"amount":%d}`, rnd.Int64N(1e6)-3e5)}
			if err := s.Send(ctx, cmd, func(_ client.Reply, err error) {
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err != nil && !settledCode(err):
					again = append(again, cmd)
				case failed == nil:
					failed = err
				}
			}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := s.Close(ctx); err != nil || failed != nil {
		t.Fatal(err, failed)
	}
	for _, cmd := range again {
		_, err := c.Send(ctx, cmd)
		for err != nil && !settledCode(err) && ctx.Err() == nil {
			_, err = c.Send(ctx, cmd)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func sameJSON(a, b []byte) bool {
	var x, y any
	return json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && fmt.Sprint(x) == fmt.Sprint(y)
}

// replayEvent is one event of a history, as a frame for the guest.
type replayEvent []byte

// lifetime is the stored data of an entity's current incarnation on a stopped
// node.
type lifetime struct {
	begins journal.Sequence // sequence before its first event: the end of the previous incarnation, or of the truncated events
	cut    bool             // the first events of this incarnation were truncated
	lives  bool             // the entity is not deleted
	events []replayEvent
	snaps  []*journal.Snapshot
}

// behind returns the events after the given sequence.
func (l *lifetime) behind(at journal.Sequence) []replayEvent { return l.events[at-l.begins:] }

// eachHistory calls fn with every entity that a stopped node stores.
func eachHistory(t *testing.T, dir string, fn func(sharding.EntityID, *lifetime)) {
	t.Helper()
	eachJournal(t, dir, func(s *shardJournal) {
		h := &histories{lives: map[sharding.EntityID]*lifetime{}}
		for id, head := range s.heads {
			l := &lifetime{lives: !head.Deleted}
			if head.Cut != nil {
				l.begins, l.cut = head.Cut.Sequence, true
			}
			h.lives[id] = l
		}
		if err := s.records(h.record); err != nil {
			t.Fatal(err)
		}
		for id, l := range h.lives {
			err := s.scan(store.ClassSnapshot, store.AppendEntityID(nil, id), func(_, body []byte) error {
				s := &journal.Snapshot{}
				l.snaps = append(l.snaps, s)
				return s.Decode(bytes.Clone(body))
			})
			if err != nil {
				t.Fatal(err)
			}
			fn(id, l)
		}
	})
}

// histories are the histories of the entities of a shard.
type histories struct {
	lives map[sharding.EntityID]*lifetime
	rec   journal.Record
}

func (h *histories) record(id sharding.EntityID, _ journal.Position, raw []byte) error {
	if err := h.rec.Decode(raw); err != nil {
		return err
	}
	l := h.lives[id]
	if have := l.begins + journal.Sequence(len(l.events)); h.rec.Expected != have {
		return fmt.Errorf("%v: a record begins at %d behind event %d", id, h.rec.Expected, have)
	}
	for i := range h.rec.Events {
		at := uint64(h.rec.Expected) + uint64(i) + 1
		if h.rec.Tombstone(i) {
			l.begins, l.cut, l.events = journal.Sequence(at), false, nil
			continue
		}
		l.events = append(l.events, abi.AppendInputEvent(nil, at, h.rec.RecordedAt, h.rec.Events[i].Type, h.rec.Events[i].Payload))
	}
	return nil
}

// replayer is a guest that runs in the test, without a node.
type replayer struct {
	t     *testing.T
	guest *guest.Instance
	types map[string]uint32 // the module's index of each type; 0 for missing types
}

func newReplayer(t *testing.T, wasm []byte, opts guest.Options) *replayer {
	t.Helper()
	e, err := guest.New(context.Background(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close(context.Background()) })
	m, err := e.Compile(context.Background(), sha256.Sum256(wasm), wasm)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	g, err := m.Instantiate(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.Close() })
	return &replayer{t: t, guest: g}
}

// check checks that every snapshot of an incarnation equals the state replayed
// from the stored events before it, and that all snapshots lead to the same
// final state. It returns that state and the guest's answer for it.
func (r *replayer) check(node string, id sharding.EntityID, l *lifetime) (state, answer []byte) {
	r.t.Helper()
	if !l.cut {
		state, answer = r.replay(id, l.begins, nil, l.events)
	}
	for _, s := range l.snaps {
		if s.Sequence < l.begins {
			r.t.Errorf("%v on %s: a snapshot at %d, the events begin behind %d", id, node, s.Sequence, l.begins)
			continue
		}
		if !l.cut {
			if before, _ := r.replay(id, l.begins, nil, l.events[:s.Sequence-l.begins]); !bytes.Equal(before, s.State) {
				r.t.Errorf("%v on %s: the snapshot at %d is %s, replayed it is %s", id, node, s.Sequence, s.State, before)
			}
		}
		behind, answered := r.replay(id, s.Sequence, s, l.behind(s.Sequence))
		if state == nil {
			state, answer = behind, answered
		}
		if !bytes.Equal(behind, state) {
			r.t.Errorf("%v on %s is %s from the snapshot at %d, else %s", id, node, behind, s.Sequence, state)
		}
	}
	if state == nil {
		r.t.Errorf("%v on %s: its events begin behind %d, and there is no snapshot", id, node, l.begins)
	}
	return state, answer
}

// replay creates an entity from a snapshot, or an empty entity at sequence
// behind, and applies the events. It returns its state and its answer.
func (r *replayer) replay(id sharding.EntityID, behind journal.Sequence, from *journal.Snapshot, events []replayEvent) (state, answer []byte) {
	r.t.Helper()
	const handle = 1
	begin, at := abi.AppendEntityID(nil, id.ID), uint64(behind)
	if begin = abi.AppendSequence(begin, at); from != nil {
		begin = abi.AppendSnapshot(begin, from.State)
	}
	if status, err := r.guest.Load(r.types[id.Type], handle, begin); err != nil || status != abi.LoadDone {
		r.t.Fatalf("load %v at %d: status %d, %v", id, at, status, err)
	}
	if len(events) > 0 {
		if err := r.guest.Apply(handle, bytes.Join(bytesOf(events), nil)); err != nil {
			r.t.Fatalf("apply %d events to %v: %v", len(events), id, err)
		}
	}
	out, err := r.guest.Snapshot(handle)
	if err != nil {
		r.t.Fatal(err)
	}
	state = bytes.Clone(out)
	query := abi.AppendNow(abi.AppendPayload(abi.AppendName(abi.AppendSequence(nil, at+uint64(len(events))), "state"), nil), 1)
	if out, err = r.guest.Query(handle, query, guest.Env{Now: 1, Seed: 1}); err != nil {
		r.t.Fatal(err)
	}
	var parsed abi.Output
	limits := abi.DefaultLimits()
	if err := abi.ParseOutput(&parsed, out, abi.QueryOnly, &limits); err != nil {
		r.t.Fatal(err)
	}
	answer = bytes.Clone(parsed.Reply)
	if err := r.guest.Drop(handle); err != nil {
		r.t.Fatal(err)
	}
	return state, answer
}

func bytesOf(events []replayEvent) [][]byte {
	out := make([][]byte, len(events))
	for i := range events {
		out[i] = events[i]
	}
	return out
}
