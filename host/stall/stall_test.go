package stall_test

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hostd/hostd/host/stall"
	"github.com/hostd/hostd/journal/disk"
	"github.com/hostd/hostd/journal/disk/disktest"
)

// loop counts its turns.
type loop struct{ atomic.Uint64 }

func (l *loop) Turns() uint64 { return l.Load() }

// hanging is a disk whose syncs block until they get a token.
type hanging struct {
	disk.FS
	token chan struct{} // one slot
}

type hangingFile struct {
	disk.File
	token chan struct{}
}

func (h *hanging) Create(name string, size int64) (disk.File, error) {
	f, err := h.FS.Create(name, size)
	return &hangingFile{f, h.token}, err
}

func (f *hangingFile) Sync() error {
	f.token <- struct{}{}
	defer func() { <-f.token }()
	return f.File.Sync()
}

func TestHungSyncEndsProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := stall.New(&loop{})
		ctx, cancel := context.WithCancel(t.Context())
		var most atomic.Int64
		go w.Run(ctx, func() { most.Store(max(most.Load(), int64(w.Disk()))) })
		on := &hanging{FS: disktest.NewCrashable(rand.New(rand.NewPCG(1, 2))), token: make(chan struct{}, 1)}
		f, err := w.FS(on).Create("log", 0)
		if err != nil {
			t.Fatal(err)
		}
		for range 1000 { // sequential operations are not a stall
			if _, err := f.WriteAt([]byte("x"), 0); err != nil {
				t.Fatal(err)
			}
			if err := f.Sync(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Millisecond)
		}
		if most.Load() != 0 {
			t.Errorf("a disk that answers stood still for %v", time.Duration(most.Load()))
		}
		on.token <- struct{}{}
		synced := make(chan error)
		go func() { synced <- f.Sync() }()
		time.Sleep(10 * time.Second)
		if d := w.Disk(); d < 9*time.Second || d > 10*time.Second {
			t.Errorf("a disk that hung for 10 s stood still for %v", d)
		}
		if w.Loop() != 0 {
			t.Errorf("a loop that is not there stood still for %v", w.Loop())
		}
		<-on.token
		if err := <-synced; err != nil || w.Disk() != 0 {
			t.Errorf("it answers, and stood still for %v; %v", w.Disk(), err)
		}
		cancel()
	})
}

func TestStalledLoopIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var turns loop
		w := stall.New(&turns)
		ctx, cancel := context.WithCancel(t.Context())
		go w.Run(ctx, func() {})
		time.Sleep(time.Minute)
		if w.Loop() != 0 {
			t.Errorf("no loop stood still for %v", w.Loop())
		}
		for range 100 {
			turns.Add(1)
			time.Sleep(100 * time.Millisecond)
		}
		if w.Loop() != 0 {
			t.Errorf("a loop that goes round stood still for %v", w.Loop())
		}
		time.Sleep(5 * time.Second)
		if d := w.Loop(); d < 4*time.Second || d > 5*time.Second {
			t.Errorf("it stood still for %v", d)
		}
		cancel()
	})
}
