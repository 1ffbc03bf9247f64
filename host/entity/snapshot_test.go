package entity

import (
	"fmt"
	"testing"
	"time"

	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// asked holds the result of one request.
type asked struct{ got *request.Result }

func (a *asked) Complete(r *request.Request) { res := r.Result; a.got = &res }

// ask sends a request and runs the world until it is answered.
func (w *world) ask(kind request.Kind, name, id string) request.Result {
	return w.askOf("x", kind, name, id)
}

func (w *world) askOf(entity string, kind request.Kind, name, id string) request.Result {
	w.t.Helper()
	return w.submit(&request.Request{
		Kind: kind, Entity: sharding.EntityID{Type: "tally", ID: entity}, Name: name, Payload: []byte("1"), ID: journal.CommandID(id),
	})
}

func (w *world) submit(r *request.Request) request.Result {
	w.t.Helper()
	var a asked
	r.Shard, r.ExpectedSequence, r.Done = worldShard, request.NoExpectation, &a
	w.core.submit(w.now, []*request.Request{r})
	for range 1000 {
		w.core.runTurns()
		w.core.endTurn()
		w.chunk()
		w.commit()
		w.reply()
		if len(w.rounds) > 0 {
			w.core.event(&coreEvent{Kind: eventReadConfirmed, Shard: worldShard, Number: w.rounds[0]})
			w.rounds = w.rounds[1:]
		}
		if a.got != nil && len(w.flights) == 0 {
			return *a.got
		}
	}
	w.t.Fatalf("%s %s is never answered", r.Name, r.ID)
	return request.Result{}
}

// quiet returns a world without randomness, whose shard the executor leads.
func quiet(t *testing.T) *world {
	w := newWorld(t, 1)
	w.prompt, w.bad = true, -1
	w.core.opts.HibernateAfter = 1000 * time.Hour
	w.elect()
	w.elect()
	return w
}

// handOver makes every entity cold: the executor loses the shard and wins it
// again.
func (w *world) handOver() {
	w.elect()
	w.serve(w.newest)
	w.elect()
}

// TestLoadFallsBackFromBadSnapshots checks that a guest that refuses
// snapshots, or traps on them, gets an older snapshot and finally all events
// from the first one. Waiting requests are answered as usual, and the entity
// counts no fault.
func TestLoadFallsBackFromBadSnapshots(t *testing.T) {
	for bad, name := range []string{"refused", "trap", "good"} {
		t.Run(name, func(t *testing.T) {
			w := quiet(t)
			for i := range 20 {
				if res := w.ask(request.Command, "add", fmt.Sprintf("c%d", i)); res.Err != nil {
					t.Fatal(res.Err)
				}
			}
			snaps := len(w.snaps["x"])
			if snaps < 3 {
				t.Fatalf("%d snapshots", snaps)
			}
			w.bad = bad
			w.handOver()
			res := w.ask(request.Query, "sum", "")
			if res.Err != nil || string(res.Payload) != "20" || res.Sequence != 20 {
				t.Fatalf("%q at %d: %v", res.Payload, res.Sequence, res.Err)
			}
			want := snaps
			if name == "good" {
				want = 1
			}
			if n := w.core.stats.SnapshotLoads; int(n) != want {
				t.Errorf("%d snapshots tried, want %d", n, want)
			}
			if e := w.core.residents.entity(w.core.shard(worldShard), sharding.EntityID{Type: "tally", ID: "x"}); e.faults() != 0 || e.withExtra().below != 0 {
				t.Errorf("faults %d, below %d", e.faults(), e.withExtra().below)
			}
			if len(w.problems) > 0 {
				t.Error(w.problems[0])
			}
		})
	}
}

// TestSnapshotPreservesIdempotencyWindow checks that a load from a snapshot remembers the
// same commands as before.
func TestSnapshotPreservesIdempotencyWindow(t *testing.T) {
	w := quiet(t)
	w.core.opts.Window.Commands = 6
	const n = 20
	for i := range n {
		w.ask(request.Command, "add", fmt.Sprintf("c%d", i))
	}
	w.handOver()
	for i := n - 6; i < n; i++ {
		res := w.ask(request.Command, "add", fmt.Sprintf("c%d", i))
		if !res.Duplicate || int(res.Sequence) != i+1 || string(res.Payload) != fmt.Sprint(i+1) {
			t.Errorf("command %d again: %+v", i, res)
		}
	}
	if w.core.stats.SnapshotLoads != 1 {
		t.Errorf("%d loads from a snapshot", w.core.stats.SnapshotLoads)
	}
	if res := w.ask(request.Command, "add", fmt.Sprintf("c%d", n-7)); res.Duplicate || res.Err != nil {
		t.Errorf("a forgotten command: %+v", res)
	}
}

// TestSnapshotWindowSurvivesLostCommands lets commands without events fill
// the window and then loses them, while other records of the entity and a
// snapshot survive. Commands that were forgotten to make room for the lost
// commands must be remembered after the next load.
func TestSnapshotWindowSurvivesLostCommands(t *testing.T) {
	const n = 6
	for _, tt := range []struct {
		name  string
		first bool // the records are lost before the command that makes a snapshot due
		loads uint64
	}{{"before it is due", true, 0}, {"before it is taken", false, 1}} {
		t.Run(tt.name, func(t *testing.T) {
			w := quiet(t)
			w.core.opts.Window.Commands, w.core.opts.SnapshotEvents = n, n+1
			for i := range n {
				w.ask(request.Command, "add", fmt.Sprintf("c%d", i))
			}
			notes := func() {
				for i := range 4 {
					w.flying("note", fmt.Sprintf("lost%d", i))
				}
			}
			if tt.first {
				notes()
			}
			w.flying("add", "due")
			if !tt.first {
				notes()
				w.commit()
				w.core.runTurns()
				w.core.endTurn()
			}
			w.flights = w.flights[4:]
			for len(w.flights) > 0 {
				w.commit()
			}
			w.handOver()
			for i := 1; i < n; i++ {
				if res := w.ask(request.Command, "add", fmt.Sprintf("c%d", i)); !res.Duplicate || int(res.Sequence) != i+1 {
					t.Errorf("command %d again: %+v", i, res)
				}
			}
			if res := w.ask(request.Command, "add", "due"); !res.Duplicate || res.Sequence != n+1 {
				t.Errorf("the last command again: %+v", res)
			}
			if loads := w.core.stats.SnapshotLoads; loads != tt.loads {
				t.Errorf("%d loads from a snapshot, want %d", loads, tt.loads)
			}
		})
	}
}

// flying proposes a command.
func (w *world) flying(name, id string) {
	w.core.submit(w.now, []*request.Request{{
		Kind: request.Command, Entity: sharding.EntityID{Type: "tally", ID: "x"}, Name: name, Payload: []byte("1"), ID: journal.CommandID(id),
		Shard: worldShard, ExpectedSequence: request.NoExpectation, Done: &asked{},
	}})
	w.core.runTurns()
	w.core.endTurn()
}

// TestFailedSnapshotIsNotRetriedSoon checks that a module that traps on every
// snapshot is not asked for a while, and that its entities continue.
func TestFailedSnapshotIsNotRetriedSoon(t *testing.T) {
	w := quiet(t)
	w.noSnapshot = true
	for i := range 50 {
		if res := w.ask(request.Command, "add", fmt.Sprintf("c%d", i)); res.Err != nil || int(res.Sequence) != i+1 {
			t.Fatalf("command %d: %+v", i, res)
		}
	}
	if f := w.core.stats.Faults; f != failuresOfModule {
		t.Errorf("%d faults", f)
	}
	w.noSnapshot = false
	w.now = w.now.Add(noSnapshotsFor + time.Second)
	w.ask(request.Command, "add", "last")
	if len(w.snaps["x"]) != 1 {
		t.Errorf("%d snapshots after the pause", len(w.snaps["x"]))
	}
}

// TestSnapshotsAreDueByEventsOrBytes checks that a snapshot is due after the
// number of events that the type sets, or, if it sets none, after a number of
// events or bytes. A large state is not written again after few bytes of
// records.
func TestSnapshotsAreDueByEventsOrBytes(t *testing.T) {
	c := newCore(Options{Journal: &bench{}}, nil)
	for _, tt := range []struct {
		name    string
		every   int
		replay  historyReplay
		waiting int
		costly  bool
		want    bool
	}{
		{"few events", 0, historyReplay{Events: 255, Bytes: 20_000, Snapshot: 0}, 0, false, false},
		{"many events", 0, historyReplay{Events: 256, Bytes: 20_000, Snapshot: 0}, 0, false, true},
		{"many bytes", 0, historyReplay{Events: 3, Bytes: 64 << 10, Snapshot: 0}, 0, false, true},
		{"a state larger than that", 0, historyReplay{Events: 3, Bytes: 64 << 10, Snapshot: 64<<10 + 1}, 0, false, false},
		{"busy", 0, historyReplay{Events: 256, Bytes: 20_000, Snapshot: 0}, 1, false, false},
		{"busy for long", 0, historyReplay{Events: 512, Bytes: 20_000, Snapshot: 0}, 1, false, true},
		{"no events", 0, historyReplay{Events: 0, Bytes: 1 << 20, Snapshot: 0}, 0, false, false},
		{"every 10, early", 10, historyReplay{Events: 9, Bytes: 1 << 20, Snapshot: 0}, 0, false, false},
		{"every 10", 10, historyReplay{Events: 10, Bytes: 1000, Snapshot: 4000}, 0, false, true},
		{"every 10, large state", 10, historyReplay{Events: 10, Bytes: 1000, Snapshot: 4001}, 0, false, false},
		{"never", -1, historyReplay{Events: 1 << 20, Bytes: 1 << 30, Snapshot: 0}, 0, false, false},
		{"loaded at a cost", 0, historyReplay{Events: 32, Bytes: 1000, Snapshot: 1000}, 0, true, true},
		{"loaded at a cost, busy", 0, historyReplay{Events: 32, Bytes: 1000, Snapshot: 1000}, 1, true, false},
		{"loaded at a cost, a larger state", 0, historyReplay{Events: 32, Bytes: 1000, Snapshot: 1001}, 0, true, false},
	} {
		s := c.shard(1)
		e := &entity{shard: s, typ: &Type{SnapshotEvery: tt.every}, replay: tt.replay, costly: tt.costly}
		for range tt.waiting {
			e.waiting.Push(&request.Request{})
		}
		if got := c.snapshots.isDue(e); got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
}

// TestCostlyLoadIsFollowedByASnapshot checks that a load that replays much is
// followed by a snapshot without another event, from which the next load
// starts.
func TestCostlyLoadIsFollowedByASnapshot(t *testing.T) {
	for _, tt := range []struct {
		name          string
		events, bytes int // thresholds of a costly load
		every         int
		want          int // number of snapshots
	}{
		{"by events", 10, 1 << 30, 0, 1},
		{"by bytes", 1 << 30, 500, 0, 1},
		{"neither", 11, 1 << 30, 0, 0},
		{"the type says when", 10, 500, 100, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := quiet(t)
			o := &w.core.opts
			o.SnapshotEvents, o.SnapshotBytes, o.ReplayEvents, o.ReplayBytes = 1000, 1<<30, tt.events, tt.bytes
			w.typ.SnapshotEvery = tt.every
			for i := range 10 {
				if res := w.ask(request.Command, "add", fmt.Sprintf("c%d", i)); res.Err != nil {
					t.Fatal(res.Err)
				}
			}
			if n := len(w.snaps["x"]); n != 0 {
				t.Fatalf("%d snapshots before a load", n)
			}
			for load := range 3 {
				w.ask(request.Passivate, "", "")
				if res := w.ask(request.Query, "sum", ""); string(res.Payload) != "10" || res.Sequence != 10 {
					t.Fatalf("%q at %d: %v", res.Payload, res.Sequence, res.Err)
				}
				if n := len(w.snaps["x"]); n != tt.want {
					t.Fatalf("%d snapshots after load %d, want %d", n, load, tt.want)
				}
			}
			if n := int(w.core.stats.SnapshotLoads); n != 2*tt.want {
				t.Errorf("%d loads from a snapshot, want %d", n, 2*tt.want)
			}
			if res := w.ask(request.Command, "add", "c0"); !res.Duplicate {
				t.Errorf("a command again: %+v", res)
			}
			if len(w.problems) > 0 {
				t.Error(w.problems[0])
			}
		})
	}
}

// TestEarlySnapshotsAreBounded checks that if many entities are loaded at
// once, as after a restart of a node, only as many get an early snapshot as
// the rate allows in one second, and the others get theirs on a later
// request.
func TestEarlySnapshotsAreBounded(t *testing.T) {
	w := quiet(t)
	o := &w.core.opts
	o.SnapshotEvents, o.SnapshotBytes, o.ReplayEvents, o.ReplayBytes = 1000, 1<<30, 2, 1<<30
	o.InstanceBytes, o.ExecutorBytes = 1<<20, 1<<20
	const entities = earlySnapshots + 50
	name := func(i int) string { return fmt.Sprintf("e%d", i) }
	for i := range entities {
		w.tell(name(i))
		w.tell(name(i))
	}
	w.handOver()
	for pass, want := range []int{earlySnapshots, earlySnapshots, entities} {
		if pass == 2 {
			w.elapse(time.Second)
		}
		taken := 0
		for i := range entities {
			if res := w.askOf(name(i), request.Query, "sum", ""); string(res.Payload) != "2" {
				t.Fatalf("%q %v", res.Payload, res.Err)
			}
			taken += len(w.snaps[name(i)])
		}
		if taken != want {
			t.Errorf("%d snapshots after pass %d, want %d", taken, pass, want)
		}
	}
	if len(w.problems) > 0 {
		t.Error(w.problems[0])
	}
}

// TestRecordsWithoutEventsCauseSnapshot checks commands without events after
// the snapshot of the last event. Once there are many such commands, the
// state is snapshotted again, with their ids in the filter, and loads read
// only later records.
func TestRecordsWithoutEventsCauseSnapshot(t *testing.T) {
	w := quiet(t)
	o := &w.core.opts
	o.SnapshotEvents, o.SnapshotBytes, o.ReplayBytes, o.FilterAbove = 10, 1<<30, 8<<10, 4
	for i := range 10 {
		w.ask(request.Command, "add", fmt.Sprintf("c%d", i))
	}
	const notes = 200
	most := 0
	for i := range notes {
		if res := w.ask(request.Command, "note", fmt.Sprintf("n%d", i)); res.Err != nil || res.Sequence != 10 {
			t.Fatal(res.Sequence, res.Err)
		}
		w.ask(request.Passivate, "", "")
		if res := w.ask(request.Query, "sum", ""); string(res.Payload) != "10" {
			t.Fatalf("%q %v", res.Payload, res.Err)
		}
		most = max(most, w.records)
	}
	if snaps := len(w.snaps["x"]); snaps < 3 || most > notes/2 {
		t.Errorf("%d snapshots, loads read up to %d of %d records", snaps, most, notes)
	}
	for i := range notes {
		if res := w.ask(request.Command, "note", fmt.Sprintf("n%d", i)); !res.Duplicate {
			t.Fatalf("command %d again: %+v", i, res)
		}
	}
	if len(w.problems) > 0 {
		t.Error(w.problems[0])
	}
}
