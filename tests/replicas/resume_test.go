package replicas_test

import (
	"io"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/hostd/hostd/journal/raftgroup"
	"github.com/hostd/hostd/sharding"
)

// breaks makes the first n streams of a world end after some bytes.
func (w *world) breaks(n int, after int64) {
	w.broken = func(stream io.Reader) io.Reader {
		if n--; n < 0 {
			return stream
		}
		return io.LimitReader(stream, after)
	}
}

// behind returns a cluster in which a follower needs a snapshot of shard 1,
// about 6 MB. It gets the snapshot when the world continues. room is the space
// that the nodes may use for kept entries and snapshots.
func behind(t *testing.T, seed uint64, room *int64) (w *world, l *load, leader, follower *node) {
	w = newWorld(t, 3, seed)
	w.opts = func(o *raftgroup.Options) { o.CatchUpSpace = func() int64 { return *room } }
	w.start()
	for _, n := range w.nodes {
		w.create(fillerShard(n), fillerReplica(n))
	}
	l = newLoad(w)
	w.create(1, 10, 11, 12)
	l.write(1, 10, 100)
	at, _ := w.leader(1)
	follower = w.nodes[(at.id+1)%3]
	w.isolate(follower.id)
	l.write(1, 100, 30_000)
	l.cutOff(1)
	w.isolate()
	leader, _ = w.leader(1)
	return w, l, leader, follower
}

// with returns the snapshot files on a node's disk that have the given suffix.
func (n *node) with(suffix string) []string {
	n.w.t.Helper()
	names, err := n.fs.List("snapshots")
	if err != nil {
		n.w.t.Fatal(err)
	}
	return slices.DeleteFunc(names, func(s string) bool { return filepath.Ext(s) != suffix })
}

// partial runs steps until the follower has a part of the snapshot and the link
// has broken.
func (w *world) partial(follower *node) {
	w.t.Helper()
	w.until("part of a snapshot", func() bool { return w.refused > 0 && len(follower.with(".partial")) == 1 })
}

// arrives runs steps until the followers have caught up, and checks their
// state.
func (l *load) arrives(followers ...*node) {
	l.w.t.Helper()
	l.agree(1, 0, 1, 2)
	for _, n := range followers {
		l.settle(n)
	}
	l.w.until("the files' end", func() bool {
		left := 0
		for _, n := range l.w.nodes {
			left += len(n.with(".partial")) + len(n.with(".sending")) + len(n.with(".snapshot")) + len(n.with(".tmp"))
			if kept := n.driver.Core().Stats().KeptBytes; left == 0 && len(n.held(l.w.t)) == 0 && kept != 0 {
				l.w.t.Fatalf("%d bytes count as kept, and there is no file", kept)
			}
		}
		return left == 0
	})
}

const manyBytes = 1 << 40

// TestSnapshotResumesAfterInterruption checks that the part that the follower has
// is not sent again, whether the link breaks or the follower restarts.
func TestSnapshotResumesAfterInterruption(t *testing.T) {
	for _, restart := range []bool{false, true} {
		room := int64(manyBytes)
		w, l, leader, follower := behind(t, 200, &room)
		w.breaks(3, 1_500_000)
		w.partial(follower)
		files := leader.with(".sending")
		if len(files) != 1 {
			t.Fatalf("the leader has the files %v", files)
		}
		info, err := leader.fs.Stat(filepath.Join("snapshots", files[0]))
		if err != nil {
			t.Fatal(err)
		}
		if restart {
			follower.end()
			follower.fs.Kill()
			follower.restart()
		}
		l.write(1, 20, 1000) // the snapshot to be sent stays the same
		w.until("the snapshot", func() bool { return w.sent == 1 })
		stats := leader.driver.Core().Stats()
		if stats.SnapshotsResumed != 3 || float64(w.bytes) > 1.3*float64(info.Size) || w.bytes < info.Size {
			t.Errorf("restart %v: gone on %d times, %d bytes sent of %d", restart, stats.SnapshotsResumed, w.bytes, info.Size)
		}
		t.Logf("restart %v: %d bytes sent of %d", restart, w.bytes, info.Size)
		l.arrives(follower)
		w.stop()
	}
}

// TestSnapshotRestartsIfNotResumable checks that if the first snapshot cannot
// be resumed, for example because its sender restarted, a different snapshot is
// sent from its beginning, and that the result contains nothing of the first
// snapshot.
func TestSnapshotRestartsIfNotResumable(t *testing.T) {
	reasons := []string{"sender restarted", "outrun", "members changed", "file is damaged", "part is damaged"}
	if testing.Short() {
		reasons = reasons[:2] // TestLoopResumesSnapshot runs with all goroutines
	}
	for _, why := range reasons {
		t.Run(why, func(t *testing.T) {
			room := int64(manyBytes)
			w, l, leader, follower := behind(t, 210, &room)
			w.breaks(1, 3_000_000)
			w.partial(follower)
			w.refuse = true
			first := leader.with(".sending")
			switch why {
			case "sender restarted":
				leader.crash()
				leader.restart()
				if left := leader.with(".sending"); len(left) != 0 {
					t.Fatalf("a start leaves the files %v", left)
				}
				l.write(1, 5, 1000)
			case "outrun":
				room = 0
				l.write(1, 60, 100)
				l.settle(leader)
				l.settle(leader)
				if stats := leader.driver.Core().Stats(); stats.SnapshotsOutrun == 0 {
					t.Fatalf("%+v", stats)
				}
				room = manyBytes
			case "members changed":
				id := sharding.ReplicaID(10 + follower.id)
				w.change(1, raftgroup.Change{AddLearners: []sharding.ReplicaID{id}}, func(s raftgroup.Status) bool { return len(s.Learners) == 1 })
				l.settle(leader)
			case "file is damaged":
				for _, name := range first {
					if err := leader.fs.Corrupt(filepath.Join("snapshots", name), 4_000_000, 0x10); err != nil {
						t.Fatal(err)
					}
				}
			case "part is damaged":
				for _, name := range follower.with(".partial") {
					if err := follower.fs.Corrupt(filepath.Join("snapshots", name), 1000, 0x10); err != nil {
						t.Fatal(err)
					}
				}
				follower.end()
				follower.fs.Kill()
				follower.restart()
			}
			w.refuse = false
			l.arrives(follower)
			if w.sent == 0 {
				t.Error("no snapshot was taken")
			}
			stats := leader.driver.Core().Stats()
			if damaged := stats.SnapshotFilesDamaged; (damaged != 0) != (why == "file is damaged") {
				t.Errorf("%d files were damaged", damaged)
			}
		})
	}
}

// TestSnapshotsWithoutAFile checks that if there is no room for a file, the
// state is streamed while it is read, each time from its beginning.
func TestSnapshotsWithoutAFile(t *testing.T) {
	room := int64(1 << 20)
	w, l, leader, follower := behind(t, 220, &room)
	w.breaks(1, 3_000_000)
	w.until("the snapshot", func() bool {
		if files := leader.with(".sending"); len(files) != 0 {
			t.Fatalf("files %v", files)
		}
		return w.sent == 1
	})
	if w.refused == 0 || leader.driver.Core().Stats().SnapshotsResumed != 0 {
		t.Errorf("%d refused, %+v", w.refused, leader.driver.Core().Stats())
	}
	l.arrives(follower)
}

// TestOneFileForTwoFollowers checks that the snapshot for two followers is
// written once.
func TestOneFileForTwoFollowers(t *testing.T) {
	room := int64(manyBytes)
	w := newWorld(t, 3, 230)
	w.opts = func(o *raftgroup.Options) { o.CatchUpSpace = func() int64 { return room } }
	w.start()
	for _, n := range w.nodes {
		w.create(fillerShard(n), fillerReplica(n))
	}
	l := newLoad(w)
	w.create(1, 10)
	l.write(1, 60, 30_000)
	l.cutOff(1)
	w.join(1, 11, 10)
	w.join(1, 12, 10)
	w.hold = true
	w.change(1, raftgroup.Change{AddLearners: []sharding.ReplicaID{11, 12}}, func(s raftgroup.Status) bool { return len(s.Learners) == 2 })
	w.until("two snapshots under way", func() bool { return len(w.shipping) == 2 })
	if files := w.nodes[0].with(".sending"); len(files) != 1 {
		t.Errorf("files %v", files)
	}
	w.hold = false
	l.arrives(w.nodes[1:]...)
}

// carry delivers a snapshot to a node. If it returns an error, report will not
// be called.
func (w *world) carry(o *raftgroup.Outgoing, from sharding.NodeID, to *node, report func(error)) error {
	if head, question := o.Question(); question != nil {
		var answer []byte
		var err error
		to.driver.ReceiveSnapshot(from, head, question, func(a []byte, e error) { answer, err = a, e })
		if err := o.Resume(answer, err); err != nil {
			return err
		}
	}
	head, stream, err := o.Stream()
	if err != nil {
		return err
	}
	defer stream.Close()
	var body io.Reader = stream
	if w.broken != nil {
		body = w.broken(body)
	}
	to.driver.ReceiveSnapshot(from, head, io.TeeReader(body, (*total)(&w.bytes)), func(_ []byte, err error) { report(err) })
	return nil
}

// total counts the bytes written to it.
type total int64

func (t *total) Write(p []byte) (int, error) { *t += total(len(p)); return len(p), nil }

// TestLoopResumesSnapshot is like TestSnapshotResumesAfterInterruption, with
// all goroutines of the loop.
func TestLoopResumesSnapshot(t *testing.T) {
	h := newHosts(t, 3, 1<<20)
	first := h.all[0]
	h.join(1, 20)
	first.fill(1, 400, 10_000)
	first.cut(1)
	var streams atomic.Int64
	h.broken = func(stream io.Reader) io.Reader {
		if n := streams.Add(1); n <= 5 {
			return io.LimitReader(stream, 1_500_000)
		}
		return stream
	}
	h.join(1, 21, 22)
	h.grow(1)
	state, err := first.machine.Pin(1)
	if err != nil {
		t.Fatal(err)
	}
	data, err := readAll(state.Stream())
	if err != nil {
		t.Fatal(err)
	}
	if most := 1.3 * 2 * float64(len(data)); float64(h.bytes.Load()) > most || h.sends.Load() != 2 {
		t.Errorf("%d snapshots of %d bytes, %d bytes sent", h.sends.Load(), len(data), h.bytes.Load())
	}
	h.stop()
}
