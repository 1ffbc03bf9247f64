package cluster

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/hostd/hostd/api/client"
	"github.com/hostd/hostd/tests/support/history"
	"github.com/hostd/hostd/tests/support/testkit"
)

// TestChaos kills, freezes, stops, partitions and wipes nodes and moves shards,
// while entities use all features: snapshots that truncate their events, timers,
// messages and replies, deletion, and passivation after every command.
// Followers of their types connect and disconnect. Each command, timer, message
// and reply must take effect once. All replicas must be equal. The state in
// memory must equal the replayed state, and the followers must have received
// the events in the journals. The same holds for entities of special kinds:
// durable states, singletons, always-on entities, schedules, and entities that
// store nothing.
func TestChaos(t *testing.T) {
	testkit.Long(t, "chaos")
	parted := canPart()
	if parted && !inside(t) {
		return
	}
	w, wasm := beginChaos(t)
	l := startChaosLoad(w)
	w.progress = l
	f := follow(w, l)
	others := startKinds(w)
	kinds := [][]kind{w.kinds()}
	if parted {
		kinds = append(kinds, w.cuts())
	}
	for i := range *chaosFaults { // each kind of fault once before any of them repeats
		w.goesOn(100 + w.rng.IntN(200))
		of := kinds[i%len(kinds)]
		n := i / len(kinds) % len(of)
		if n == 0 {
			w.rng.Shuffle(len(of), func(i, j int) { of[i], of[j] = of[j], of[i] })
		}
		if i == 0 { // every run begins with a kill
			n = slices.IndexFunc(of, func(k kind) bool { return k.name == "kill" })
			of[0], of[n] = of[n], of[0]
			n = 0
		}
		w.do(of[n])
	}
	cut, _ := chaosEntity(wholes)
	w.Await("events are cut", func() bool { return wasCut(t.Context(), w.c, cut) })
	// A node that has lost its disk gets all data from the other nodes, including
	// the remaining records of truncated histories. This is the last fault,
	// because another disk may be lost only when the copy is complete.
	w.do(kind{"empty", w.empty})
	w.endChaos(l, f, others, wasm)
}

// empty kills a node and starts it without its data.
func (w *world) empty(victim int) {
	w.Kill(victim)
	w.goesOn(20)
	if err := os.RemoveAll(w.Node(victim).DataDir()); err != nil {
		w.t.Fatal(err)
	}
	w.Node(victim).Start()
}

func beginChaos(t *testing.T) (*world, []byte) {
	t.Helper()
	if *seed == 0 {
		*seed = rand.Uint64()
	}
	t.Logf("repeat with -chaos.faults=%d -seed=%d", *chaosFaults, *seed)
	w := &world{
		Cluster: testkit.StartCluster(t, nodes, testkit.ClusterOptions{Shards: shards}), t: t,
		rng: rand.New(rand.NewPCG(*seed, 1<<33)), h: history.New(), done: map[string]int{},
	}
	wasm := testkit.BuildGuest(t, "tests/e2e/cluster/guest")
	w.c = w.Client(client.Options{Timeout: testkit.Patience, MaxBackoff: 100 * time.Millisecond})
	if _, err := w.c.Upload(t.Context(), wasm, true); err != nil {
		t.Fatal(err)
	}
	return w, wasm
}

// canPart reports whether this test can cut links between nodes.
func canPart() bool {
	_, err := exec.LookPath("ip")
	return err == nil && os.Geteuid() == 0
}

// cuts returns the partitions, as faults.
func (w *world) cuts() (out []kind) {
	net := newNetwork(w)
	for _, s := range partitions {
		out = append(out, kind{s.name, func(victim int) {
			heal := net.cut(s.links(victim, (victim+1)%nodes, (victim+2)%nodes)...)
			w.pause(2 * time.Second)
			heal()
			w.goesOn(20)
		}})
	}
	return out
}

// endChaos heals everything and checks all results.
func (w *world) endChaos(l *chaosLoad, f *streams, others *kindsLoad, wasm []byte) {
	t := w.t
	t.Helper()
	w.AwaitSpread()
	w.goesOn(200)
	if err := l.Stop(); err != nil {
		t.Fatalf("a caller was told: %v", err)
	}
	others.end(t)
	ticks := others.ticks(t)
	f.awaitAll(w, w.quiet())
	l.settle(f)
	once := map[string]*stream{}
	for _, s := range f.all {
		once[s.of] = readOnce(t, w.c, s.of)
	}
	lived := l.checkStates(t)
	awaitLevel(w.Cluster)
	w.StopAll()
	_, compared := compareReplicas(t, w.Cluster, shards)
	have := readKept(t, w.Node(0).DataDir())
	timers, sends := l.checkKept(t, have)
	lives, skipped := []int{}, uint64(0)
	for i, s := range f.all {
		s.check(t, fmt.Sprintf("follower %d", i), have)
		lives, skipped = append(lives, s.lives), skipped+s.skipped
	}
	for _, s := range once {
		s.check(t, "a reader", have)
	}
	snapshots := checkReplays(t, w, wasm, lived)
	for _, n := range w.Nodes() {
		n.MustVerify()
	}
	w.Start()
	others.awaitStarted(w)
	others.check(t)
	for d, state := range l.checkStates(t) {
		if string(state) != string(lived[d]) {
			t.Errorf("%s answers %s after all were stopped in order, before %s", d, state, lived[d])
		}
	}
	gone := uint64(0)
	for _, k := range have {
		gone += k.first - 1
	}
	want := l.ledger()
	if timers == 0 || sends == 0 || ticks == 0 || gone == 0 || l.resent.Load() == 0 {
		t.Errorf("%d timers, %d ticks, %d sends, %d events cut, %d commands sent again: too little was done", timers, ticks, sends, gone, l.resent.Load())
	}
	t.Logf("%v; %d answers, %d commands answered again, %d refused as they may have been forgotten; %d sends, of them %d seen one by one; %d timers; %d ticks; %d events cut, %d passed over by followers in %v lives; %d records alike on all replicas; %d snapshots replayed",
		w.done, l.Acknowledged(), l.resent.Load(), len(l.unknown), want.sends, sends, timers, ticks, gone, skipped, lives, compared, snapshots)
}
