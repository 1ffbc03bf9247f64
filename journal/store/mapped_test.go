package store

import (
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"
)

// TestReleaseMappedKeepsWhatIsStored: releasing pages while tables are being
// compacted loses no data.
func TestReleaseMappedKeepsWhatIsStored(t *testing.T) {
	s := open(t, t.TempDir(), Options{MemTableBytes: minMemTableBytes})
	const versions, pairs = 30, 100
	var releasing sync.WaitGroup
	stop := make(chan struct{})
	released := int64(0)
	releasing.Go(func() {
		for {
			n, err := s.ReleaseMapped()
			if err != nil {
				t.Error(err)
				return
			}
			released = max(released, n)
			select {
			case <-stop:
				return
			default:
				runtime.Gosched()
			}
		}
	})
	fill := noise(1 << 20)
	want := map[string]string{}
	for version := uint64(1); version <= versions; version++ {
		var b Batch
		for range pairs {
			// Incompressible bytes make the tables as large as the data.
			k, at := key(1, rand.IntN(4*pairs)), rand.IntN(len(fill)-1000)
			if _, there := want[string(k)]; there && rand.IntN(4) == 0 {
				continue
			}
			b.Put(k, []byte(fill[at:at+1000]))
			want[string(k)] = fill[at : at+1000]
		}
		if err := s.Write(&b, version); err != nil {
			t.Fatal(err)
		}
		s.SetDiscard(version - 1)
	}
	close(stop)
	releasing.Wait()
	if got := scan(t, s, versions); !equal(got, want) {
		t.Errorf("%d pairs are there, not as they were written: want %d", len(got), len(want))
	}
	if runtime.GOOS == "linux" && released == 0 {
		t.Error("no table was let go of")
	}
}

// TestReleaseMappedGivesPagesBack: releasing pages shrinks the resident memory.
func TestReleaseMappedGivesPagesBack(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux tells what is mapped where")
	}
	dir := t.TempDir()
	s := open(t, dir, Options{MemTableBytes: 2 << 20})
	fill := noise(1 << 20)
	var b Batch
	for i := range 50 {
		b.Reset()
		for j := range 20 {
			b.Put(key(1, 20*i+j), []byte(fill[1000*(20*i+j):][:10_000]))
		}
		if err := s.Write(&b, uint64(i+1)); err != nil {
			t.Fatal(err)
		}
	}
	closeStore(t, s)
	s = open(t, dir, Options{MemTableBytes: 2 << 20})
	scan(t, s, 50)
	before, err := MappedBytes()
	if err != nil {
		t.Fatal(err)
	}
	if released, err := s.ReleaseMapped(); err != nil || released < 8<<20 {
		t.Fatalf("went through %d bytes: %v", released, err)
	}
	if after, err := MappedBytes(); err != nil || after > before-6<<20 {
		t.Errorf("%d MiB of files are in memory, %d before: %v", after>>20, before>>20, err)
	}
}

// noise returns incompressible bytes.
func noise(n int) string {
	r := rand.New(rand.NewPCG(1, 2))
	var s strings.Builder
	for range n {
		s.WriteByte(byte(r.Uint32()))
	}
	return s.String()
}
