package snapdir

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"testing"

	"github.com/hostd/hostd/journal/disk"
	"github.com/hostd/hostd/journal/disk/disktest"
	"github.com/hostd/hostd/journal/statefile"
)

// manyPairs is a state of n pairs of 16 KiB.
type manyPairs struct {
	head   statefile.Header
	n, at  int
	value  []byte
	closed int
}

func (p *manyPairs) Header() statefile.Header { return p.head }
func (p *manyPairs) Stream() io.ReadCloser    { return statefile.NewWriter(p.head, p) }
func (p *manyPairs) Close() error             { p.closed++; return nil }
func (p *manyPairs) Next() (key, value []byte, err error) {
	if p.at == p.n {
		return nil, nil, io.EOF
	}
	p.at++
	p.value[0] = byte(p.at)
	return fmt.Appendf(nil, "%08d", p.at), p.value, nil
}

func stateOf(pairs int) *manyPairs {
	return &manyPairs{head: statefile.Header{Shard: 5, Index: 9, Term: 3}, n: pairs, value: make([]byte, 16<<10)}
}

func testFiles(t *testing.T, fs disk.FS) *Dir {
	t.Helper()
	s := &Dir{fs: fs, path: "snapshots", logger: slog.New(slog.DiscardHandler), every: 1 << 20}
	if err := fs.MkdirAll(s.path); err != nil {
		t.Fatal(err)
	}
	return s
}

// written returns a file of a state, ready to be sent.
func written(t *testing.T, s *Dir, state *manyPairs) *SendFile {
	t.Helper()
	f := s.NewSendFile(5, 8, state.head)
	s.Fill(context.Background(), f, state)
	if err := f.Wait(context.Background()); err != nil || f.HasFailed() || state.closed != 1 {
		t.Fatalf("%v, closed %d times", err, state.closed)
	}
	return f
}

// TestPartsSurvivePowerCuts: the synced bytes of a part survive a power cut,
// and the rest of the stream completes the snapshot.
func TestPartsSurvivePowerCuts(t *testing.T) {
	seeds := uint64(20)
	if testing.Short() {
		seeds = 3 // only one goroutine runs, so more seeds would not find races
	}
	for seed := range seeds {
		rng := rand.New(rand.NewPCG(seed, 3))
		sender := testFiles(t, disktest.NewCrashable(rng))
		f := written(t, sender, stateOf(260)) // 4 MB
		from := func(offset int64) io.ReadCloser {
			stream, at, err := sender.OpenSendFile(f, offset, func(err error) { t.Error(err) })
			if err != nil || at != offset {
				t.Fatal(at, err)
			}
			return stream
		}
		stream := from(0)
		fs := disktest.NewCrashable(rng)
		s := testFiles(t, fs)
		head := f.Header()
		p := s.NewPart(head.Shard, 7, f.Digest())
		if _, err := s.Receive(io.LimitReader(stream, 3_900_000), head, 7, p, 0); err == nil || p.Offset() < 3_500_000 {
			t.Fatalf("%d bytes, %v", p.Offset(), err)
		}
		stream.Close()
		fs.Crash()

		s = testFiles(t, fs)
		names, err := fs.List(s.path)
		if err != nil || len(names) != 1 {
			t.Fatalf("%v, %v", names, err)
		}
		if p = s.FindPart(head.Shard, 7, names[0]); p == nil || p.digest != f.Digest() {
			t.Fatalf("%s is not taken up", names[0])
		}
		if more, err := s.Check(p); more || err != nil || p.Offset() < 2*s.every {
			t.Fatalf("%d bytes are left: %v", p.Offset(), err)
		}
		if p.Offset() > 3_900_000 {
			t.Fatalf("%d bytes", p.Offset())
		}
		stream = from(p.Offset())
		if got, err := s.Receive(stream, head, 7, p, 0); err != nil || got != f.Digest() {
			t.Fatalf("%s, %v", got, err)
		}
		stream.Close()
		whole, _ := disk.ReadFile(sender.fs, "snapshots/"+f.name)
		got, err := disk.ReadFile(fs, "snapshots/"+Name(head.Shard, 7, f.Digest()))
		if err != nil || !bytes.Equal(got, whole) {
			t.Fatalf("%d bytes of %d: %v", len(got), len(whole), err)
		}
	}
}

// TestPartsOfOtherReplicasAreIgnored: files of other replicas, names or shards are not
// resumed.
func TestPartsOfOtherReplicasAreIgnored(t *testing.T) {
	s := testFiles(t, disktest.NewCrashable(rand.New(rand.NewPCG(1, 1))))
	digest := statefile.Digest{1}
	name := s.NewPart(5, 7, digest).name
	for _, other := range []string{"00000005" + name[8:len(name)-1], Name(5, 7, digest), "x.partial", s.NewPart(6, 7, digest).name, s.NewPart(5, 8, digest).name} {
		if f, err := s.fs.Create("snapshots/"+other, 10); err != nil {
			t.Fatal(err)
		} else {
			f.Close()
		}
		if s.FindPart(5, 7, other) != nil {
			t.Errorf("%s is taken up", other)
		}
	}
}

// TestSendFileIsLimitedBySpace: a state that exceeds the limit is not written, and no
// bytes count as kept once its file is removed.
func TestSendFileIsLimitedBySpace(t *testing.T) {
	s := testFiles(t, disktest.NewCrashable(rand.New(rand.NewPCG(1, 1))))
	s.limit = func() int64 { return 1 << 20 }
	state := stateOf(100)
	f := s.NewSendFile(5, 8, state.head)
	s.Fill(context.Background(), f, state)
	err := f.Wait(context.Background())
	if !errors.Is(err, ErrNoFile) || !f.HasFailed() || state.closed != 1 || s.KeptBytes() != f.size || f.size > 1<<20 {
		t.Fatalf("%v: %d bytes kept of %d", err, s.KeptBytes(), f.size)
	}
	s.DiscardSendFile(f)
	if s.KeptBytes() != 0 {
		t.Errorf("%d bytes are kept", s.KeptBytes())
	}
	s.Sweep()
	if names, err := s.Names(); err != nil || len(names) != 0 {
		t.Errorf("%v are left: %v", names, err)
	}
}
