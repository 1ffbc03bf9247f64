package virtualtime

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/api/client"
	"github.com/hostd/hostd/journal/disk"
)

// hangingDisk is a node's disk, whose syncs a test can block.
type hangingDisk struct {
	disk.OS
	hold  atomic.Pointer[chan struct{}]
	ended chan int     // exit code of the process
	ahead atomic.Int64 // offset of the node's wall clock in nanoseconds
}

type hangingFile struct {
	disk.File
	disk *hangingDisk
}

// disk returns the disk of a node. All processes of the node use the same disk.
func (w *world) disk(i int) *hangingDisk {
	d, _ := w.disks.LoadOrStore(i, &hangingDisk{ended: make(chan int, 1)})
	return d.(*hangingDisk)
}

// hang blocks all syncs until end is called.
func (d *hangingDisk) hang() (end func()) {
	held := make(chan struct{})
	d.hold.Store(&held)
	return func() {
		d.hold.Store(nil)
		close(held)
	}
}

func (d *hangingDisk) exit(code int) { d.ended <- code }

func (d *hangingDisk) file(f disk.File, err error) (disk.File, error) {
	if err != nil {
		return nil, err
	}
	return &hangingFile{f, d}, nil
}

func (d *hangingDisk) OpenFile(name string, access disk.Access) (disk.File, error) {
	return d.file(d.OS.OpenFile(name, access))
}

func (d *hangingDisk) Create(name string, size int64) (disk.File, error) {
	return d.file(d.OS.Create(name, size))
}

func (f *hangingFile) Sync() error {
	if held := f.disk.hold.Load(); held != nil {
		<-*held
	}
	return f.File.Sync()
}

// asleep waits until every raft group is asleep, so that only heartbeats of
// links are sent.
func (w *world) asleep() { time.Sleep(10 * time.Second) }

// ledBut reports whether, according to a node, nodes other than old lead every
// shard.
func (w *world) ledBut(seenBy, old int) bool {
	for _, s := range w.shards(seenBy) {
		if w.place(s.GetLeader()) == old {
			return false
		}
	}
	return w.led(seenBy)
}

// A node's disk hangs while most of the shards that it leads are asleep. Its
// links still work. The other nodes must soon lead all of its shards, and the
// process must end.
func TestDiskHangs(t *testing.T) {
	run(t, options{nodes: 3, shards: 12}, func(t *testing.T, w *world) {
		w.found()
		w.push()
		old := w.leader(1, 1)
		entity, others := w.heldBy(old), w.others(old)
		if _, err := w.client().Send(w.soon(), add(entity, 1)); err != nil {
			t.Fatal(err)
		}
		w.asleep()
		end := sync.OnceFunc(w.disk(old).hang())
		defer end()
		began := time.Now()
		go w.beside(old).Send(w.soon(), add(entity, 100))
		took := w.within(2*failOver, "the others lead every shard", func() bool { return w.ledBut(others[0], old) })
		t.Logf("every shard is led elsewhere %v after the disk hung", took)
		for _, i := range others {
			if _, err := w.beside(i).Query(w.soon(), total(entity)); err != nil {
				t.Errorf("through %s: %v", id(i), err)
			}
		}
		if w.nodes[old].Ready() {
			t.Error("it is ready")
		}
		if _, err := w.beside(old).Query(w.soon(), total(entity)); client.CodeOf(err) == connect.CodeDeadlineExceeded {
			t.Errorf("it lets callers wait: %v", err)
		}
		if code := <-w.disk(old).ended; code != 1 || time.Since(began) < 19*time.Second || time.Since(began) > 23*time.Second {
			t.Errorf("the process ended with %d after %v", code, time.Since(began))
		}
		if !w.log.said(saysDisk) {
			t.Error("it did not say why")
		}
		if _, err := w.beside(old).Query(w.soon(), total(entity)); err == nil {
			t.Error("its port is open")
		}
		end()
		w.kill(old)
		w.begin(pace)
		w.start(old)
		w.acknowledged(50)
		w.settled()
		w.judge()
	})
}

// A disk repeatedly hangs for some seconds. The process must survive, and must
// serve again when the disk responds.
func TestDiskHangsForAWhile(t *testing.T) {
	run(t, options{nodes: 3, shards: 6}, func(t *testing.T, w *world) {
		w.loaded(pace)
		for i := range 4 {
			old := w.leader(1+uint32(i), 1)
			end := w.disk(old).hang()
			others := w.others(old)
			w.within(2*failOver, "the others lead every shard", func() bool { return w.ledBut(others[0], old) })
			w.acknowledged(50)
			end()
			w.settled()
		}
		w.judge()
	})
}

// A node whose wall clock is wrong must lead nothing until the clock is right
// again.
func TestNodeWithWrongClockLeadsNothing(t *testing.T) {
	run(t, options{nodes: 3, shards: 6}, func(t *testing.T, w *world) {
		w.loaded(pace)
		wrong := w.leader(1, 1)
		others := w.others(wrong)
		w.disk(wrong).ahead.Store(int64(time.Hour))
		w.until("it leads nothing", func() bool { return w.ledBut(others[0], wrong) })
		w.until("the others serve what they lead", func() bool { return w.nodes[others[0]].Ready() && w.nodes[others[1]].Ready() })
		if w.nodes[wrong].Ready() {
			t.Error("it is ready")
		}
		w.acknowledged(50)
		w.disk(wrong).ahead.Store(int64(-100 * time.Millisecond))
		w.settled()
		w.until("it leads again", func() bool { return !w.ledBut(others[0], wrong) })
		w.judge()
	})
}
