package replicas_test

import (
	"errors"
	"path/filepath"
	"slices"
	"testing"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/disk"
	"github.com/hostd/hostd/journal/eventlog"
	"github.com/hostd/hostd/journal/raftgroup"
	"github.com/hostd/hostd/journal/raftgroup/wire"
	"github.com/hostd/hostd/sharding"
)

// lagging returns a cluster in which a follower needs a snapshot of the shard.
// It gets the snapshot when the world continues.
func lagging(t *testing.T, seed uint64, s sharding.ShardID, entries int) (w *world, l *load, follower *node) {
	w, l = newCluster(t, seed)
	w.create(s, 10, 11, 12)
	l.write(s, 10, 100)
	at, _ := w.leader(s)
	follower = w.nodes[(at.id+1)%3]
	w.isolate(follower.id)
	l.write(s, entries, 100)
	l.cutOff(s)
	w.isolate()
	return w, l, follower
}

// TestPowerCutsDuringInstall cuts the follower's power at every operation of
// its disk, from the first byte of the snapshot until its file is removed.
// Afterwards the follower has the same state as the leader.
func TestPowerCutsDuringInstall(t *testing.T) {
	for _, s := range []sharding.ShardID{0, 1} {
		places := 0
		for at := 0; ; at += *every {
			w, l, n := lagging(t, uint64(at), s, 30)
			n.lazy = at%3 == 1
			n.idle = at%5 == 2
			w.until("a snapshot under way", func() bool { return len(w.shipping) > 0 || w.sent > 0 })
			n.fs.CutAfter(at)
			w.revive = true
			for range 60 {
				w.step()
			}
			n.lazy, n.idle = false, false
			w.until("the install", func() bool { return w.crashes > 0 || w.sent > 0 && !n.machine.IsInstalling(s) })
			l.settle(n)
			w.until("the file's end", func() bool { return w.crashes > 0 || w.sent > 0 && len(n.files()) == 0 })
			done := w.crashes == 0
			if done {
				n.crash() // cancels a power cut that was not reached
				n.restart()
			}
			places++
			w.until("the snapshot", func() bool { return w.sent > 0 })
			l.write(s, 3, 100)
			l.agree(s, 0, 1, 2)
			l.settle(n)
			w.until("the file's end", func() bool { return len(n.files()) == 0 })
			if done {
				if at < 30 {
					t.Fatalf("only %d operations of the disk", at)
				}
				t.Logf("shard %d: power cut at %d places of %d", s, places, at)
				break
			}
			w.stop()
		}
	}
}

// TestSnapshotFileStaysUntilDurable checks that a restart installs the snapshot
// again as long as the recorded durable index is before the install.
func TestSnapshotFileStaysUntilDurable(t *testing.T) {
	w, l, n := lagging(t, 11, 1, 40)
	w.until("the install", func() bool { return w.sent > 0 && !n.machine.HasWork() && n.machine.UnflushedBytes() == 0 })
	for range 50 {
		w.step()
	}
	if len(n.files()) != 1 {
		t.Fatalf("files %v before the store is durable", n.files())
	}
	for range 3 {
		n.crash()
		n.restart()
		if index, _ := n.machine.Applied(1); index == 0 {
			t.Fatal("nothing after the restart")
		}
	}
	l.agree(1, 0, 1, 2)
	l.settle(n)
	w.until("the file's end", func() bool { return len(n.files()) == 0 })
	n.crash()
	n.restart()
	l.write(1, 3, 100)
	l.agree(1, 0, 1, 2)
	if w.sent != 1 {
		t.Errorf("%d snapshots", w.sent)
	}
}

func TestMissingOrDamagedFilesAreDamage(t *testing.T) {
	for _, how := range []string{"missing", "flipped", "short", "another"} {
		w, l, n := lagging(t, 12, 1, 40)
		n.lazy = true
		w.until("the record", func() bool { return w.sent > 0 })
		files := n.files()
		if len(files) != 1 {
			t.Fatal(files)
		}
		path := filepath.Join("snapshots", files[0])
		data, err := disk.ReadFile(n.fs, path)
		if err != nil {
			t.Fatal(err)
		}
		switch how {
		case "missing":
			err = errors.Join(n.fs.Remove(path), n.fs.SyncDir("snapshots"))
		case "flipped":
			data[len(data)/2] ^= 4
			err = disk.WriteFileAtomic(n.fs, path, data)
		case "short":
			err = disk.WriteFileAtomic(n.fs, path, data[:len(data)-1])
		case "another":
			l.write(1, 3, 100)
			leader, _ := w.leader(1)
			leader.flush()
			p, err2 := leader.machine.Pin(1)
			if err2 != nil {
				t.Fatal(err2)
			}
			data, err = readAll(p.Stream())
			err = errors.Join(err, disk.WriteFileAtomic(n.fs, path, data))
		}
		if err != nil {
			t.Fatal(err)
		}
		n.crash()
		if err := n.start(); !errors.Is(err, journal.ErrDamaged) {
			t.Errorf("%s: %v", how, err)
		}
	}
}

// TestEntriesWaitForSnapshotInstall checks that entries committed during an
// install are applied after the install, and that nobody reads a partly
// installed state.
func TestEntriesWaitForSnapshotInstall(t *testing.T) {
	for _, s := range []sharding.ShardID{0, 1} {
		w, l, n := lagging(t, 13, s, 40)
		wake, cancel, err := n.machine.Subscribe(s, entity("e1"))
		if err != nil {
			t.Fatal(err)
		}
		defer cancel()
		n.idle = true
		w.until("the record", func() bool { return w.sent > 0 })
		l.write(s, 20, 100)
		if w.step(); n.machine.Waiting() == 0 {
			t.Fatal("nothing waits")
		}
		if s != 0 {
			for name, err := range reads(n, s) {
				if !errors.Is(err, eventlog.ErrInstalling) {
					t.Errorf("%s: %v", name, err)
				}
			}
		}
		if _, err := n.machine.Pin(s); err == nil {
			t.Error("half a state can be given away")
		}
		n.idle = false
		l.agree(s, 0, 1, 2)
		if n.machine.Waiting() != 0 {
			t.Error("something waits for ever")
		}
		select {
		case <-wake:
		default:
			t.Error("a subscriber slept over the snapshot")
		}
		if len(n.failed) > 0 {
			t.Error(n.failed)
		}
	}
}

// TestOrderHasNoGapAndNoRepeat checks that after an install, a reader of the
// event order continues at the position that it had before.
func TestOrderHasNoGapAndNoRepeat(t *testing.T) {
	w, l, n := lagging(t, 14, 1, 40)
	var rows []string
	cursor, err := order(n, 1, 0, &rows)
	if err != nil {
		t.Fatal(err)
	}
	w.until("the record", func() bool { return w.sent > 0 })
	for range 30 {
		at, err := order(n, 1, cursor, &rows)
		if err != nil && !errors.Is(err, eventlog.ErrInstalling) {
			t.Fatal(err)
		}
		cursor = at
		l.write(1, 1, 100)
	}
	l.agree(1, 0, 1, 2)
	if _, err := order(n, 1, cursor, &rows); err != nil {
		t.Fatal(err)
	}
	var all []string
	leader, _ := w.leader(1)
	if _, err := order(leader, 1, 0, &all); err != nil || !slices.Equal(rows, all) {
		t.Fatalf("read %d rows of %d: %v", len(rows), len(all), err)
	}
}

func TestLeaderChangeDuringSnapshot(t *testing.T) {
	for seed := range uint64(6) {
		w, l, n := lagging(t, 20+seed, 1, 40)
		w.hold = true
		w.until("a snapshot under way", func() bool { return len(w.shipping) > 0 })
		old, _ := w.leader(1)
		if seed%2 == 0 {
			old.crash()
		} else {
			w.isolate(old.id)
			for _, o := range w.nodes {
				o.driver.Core().PeerSuspected(name(old.id))
				old.driver.Core().PeerSuspected(name(o.id))
			}
		}
		stale := w.shipping
		w.shipping = nil
		w.until("another leader", func() bool {
			for _, o := range w.nodes {
				if o.up && o != old && o != n && o.leads[1] != 0 {
					return true
				}
			}
			return false
		})
		for _, s := range stale { // snapshots of the leader that no longer exists
			w.isolate()
			w.deliver(s)
		}
		w.isolate()
		w.hold = false
		if !old.up {
			old.restart()
		}
		l.write(1, 10, 100)
		l.agree(1, 0, 1, 2)
	}
}

// TestSecondInstallDiscardsUnfinishedOne checks that a second install discards
// the generation of the first install, with everything that the first install
// had written.
func TestSecondInstallDiscardsUnfinishedOne(t *testing.T) {
	for _, s := range []sharding.ShardID{0, 1} {
		for _, crash := range []string{"", "before", "after"} {
			w, l, n := lagging(t, 30, s, 40)
			n.idle = true // the node never installs the first snapshot
			w.until("the first", func() bool { return w.sent > 0 })
			if s == 1 {
				n.machine.Work() // installs only a part of the snapshot
				n.flush()
			}
			w.isolate(n.id)
			l.write(s, 60, 100)
			l.cutOff(s)
			first := w.sent
			w.isolate()
			if crash == "before" {
				n.crash()
				n.restart()
			}
			w.until("the second", func() bool { return w.sent > first })
			if crash == "after" {
				n.crash()
				n.restart()
			}
			n.idle = false
			l.write(s, 5, 100)
			l.agree(s, 0, 1, 2)
			l.settle(n)
			w.until("the files' end", func() bool { return len(n.files()) == 0 })
		}
	}
}

func TestRemoveDuringInstall(t *testing.T) {
	w, l, n := lagging(t, 40, 1, 40)
	n.idle = true
	w.until("the record", func() bool { return w.sent > 0 })
	id := sharding.ReplicaID(10 + n.id)
	w.change(1, raftgroup.Change{Remove: []sharding.ReplicaID{id}}, func(st raftgroup.Status) bool { return len(st.Voters) == 2 })
	if err := remove(n, 1, id); err != nil {
		t.Fatal(err)
	}
	if len(n.files()) != 0 {
		t.Errorf("files %v", n.files())
	}
	n.idle = false
	next := id + 10
	w.join(1, next, 10, 11, 12)
	w.change(1, raftgroup.Change{AddLearners: []sharding.ReplicaID{next}}, func(st raftgroup.Status) bool { return len(st.Learners) == 1 })
	l.write(1, 5, 100)
	l.agree(1, 0, 1, 2)
	w.change(1, raftgroup.Change{AddVoters: []sharding.ReplicaID{next}}, func(st raftgroup.Status) bool {
		return len(st.Voters) == 3 && len(st.Outgoing) == 0
	})
	l.write(1, 5, 100)
	l.agree(1, 0, 1, 2)
}

// TestEntriesAfterSnapshotAreKept checks that while a snapshot is being sent,
// the leader keeps the entries after it, on disk and not in memory, so that one
// snapshot is enough.
func TestEntriesAfterSnapshotAreKept(t *testing.T) {
	w, l, _ := lagging(t, 60, 1, 40)
	w.hold = true
	w.until("a snapshot under way", func() bool { return len(w.shipping) > 0 })
	index := w.shipping[0].o.Index
	l.write(1, 60, 100)
	at, _ := w.leader(1)
	l.settle(at)
	l.settle(at)
	st, err := at.driver.Core().Status(1)
	if err != nil || st.First < index+50 || at.driver.Core().Stats().HeldBytes == 0 {
		t.Fatalf("the log goes from %d to %d, the snapshot is of %d: %v", st.First, st.Last, index, err)
	}
	w.hold = false
	l.agree(1, 0, 1, 2)
	if w.sent != 1 {
		t.Errorf("%d snapshots", w.sent)
	}
	w.until("nothing held", func() bool {
		l.settle(at)
		return at.driver.Core().Stats().HeldBytes == 0
	})
	if files := at.held(t); len(files) != 0 {
		t.Errorf("files %v are left", files)
	}
}

// held returns the files of entries that are kept for followers.
func (n *node) held(t *testing.T) []string {
	names, err := n.fs.List("snapshots")
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(names, func(s string) bool { return filepath.Ext(s) != ".catchup" })
}

// TestSnapshotRestartsWithoutLog checks that if the log after a snapshot cannot be
// kept, because there is no room or its file is damaged, the follower gets
// another snapshot.
func TestSnapshotRestartsWithoutLog(t *testing.T) {
	for _, fault := range []string{"no room", "damage"} {
		t.Run(fault, func(t *testing.T) {
			room := int64(1 << 30)
			w := newWorld(t, 3, 65)
			w.opts = func(o *raftgroup.Options) { o.CatchUpSpace = func() int64 { return room } }
			w.start()
			for _, n := range w.nodes {
				w.create(fillerShard(n), fillerReplica(n))
			}
			l := newLoad(w)
			w.create(1, 10, 11, 12)
			l.write(1, 10, 100)
			at, _ := w.leader(1)
			w.isolate((at.id + 1) % 3)
			l.write(1, 40, 100)
			l.cutOff(1)
			w.isolate()
			w.hold = true
			w.until("a snapshot under way", func() bool { return len(w.shipping) > 0 })
			if at, _ = w.leader(1); fault == "no room" {
				room = 0
			}
			l.write(1, 60, 100)
			l.settle(at)
			l.settle(at)
			stats := at.driver.Core().Stats()
			if fault == "no room" && (stats.SnapshotsOutrun == 0 || stats.HeldBytes != 0) {
				t.Fatalf("%d outrun, %d bytes held", stats.SnapshotsOutrun, stats.HeldBytes)
			}
			if fault == "damage" {
				for _, name := range at.held(t) {
					if err := at.fs.Corrupt(filepath.Join("snapshots", name), 40, 0x10); err != nil {
						t.Fatal(err)
					}
				}
			}
			room = 1 << 30
			w.hold = false
			l.agree(1, 0, 1, 2)
			if w.sent < 2 {
				t.Errorf("%d snapshots", w.sent)
			}
		})
	}
}

// TestLateRejectionsRequestNoSnapshot: a follower sends rejections before it
// gets its snapshot, and they arrive afterwards, possibly several times. They
// must not cause another snapshot.
func TestLateRejectionsRequestNoSnapshot(t *testing.T) {
	w, l := newCluster(t, 61)
	w.create(1, 10, 11, 12)
	l.write(1, 10, 100)
	at, _ := w.leader(1)
	follower := w.nodes[(at.id+1)%3]
	w.isolate(follower.id)
	l.write(1, 40, 100)
	l.cutOff(1)
	var late []sentFrame
	w.tap = func(to *node, m sentFrame) {
		if to != at || m.from != follower.id || w.sent > 0 {
			return
		}
		if err := wire.DecodeFrame(m.frame, func(msg wire.Message) {
			if msg.Shard == 1 && msg.Raft.GetReject() {
				late = append(late, m)
			}
		}); err != nil {
			t.Fatal(err)
		}
	}
	w.isolate()
	w.until("the snapshot", func() bool { return w.sent > 0 })
	if len(late) == 0 {
		t.Fatal("the follower rejected nothing")
	}
	for range 30 {
		at.inbox = slices.Concat(late, at.inbox)
		w.step()
	}
	l.agree(1, 0, 1, 2)
	if w.sent != 1 {
		t.Errorf("%d snapshots", w.sent)
	}
}

// TestFailedSnapshotsBackOff checks that retries back off,
// measured in ticks of the leader's clock.
func TestFailedSnapshotsBackOff(t *testing.T) {
	w, l, _ := lagging(t, 70, 1, 40)
	w.refuse = true
	w.until("a failure", func() bool { return w.refused > 0 })
	var tries []int
	for range 3 {
		before := w.refused
		for range 600 { // about 300 ticks
			w.step()
		}
		tries = append(tries, w.refused-before)
	}
	if tries[0] > 12 || tries[1] > 6 || tries[2] > 6 || tries[2] == 0 {
		t.Errorf("tries in 300 ticks each: %v", tries)
	}
	w.refuse = false
	l.agree(1, 0, 1, 2)
	if w.sent == 0 {
		t.Error("no snapshot")
	}
}
