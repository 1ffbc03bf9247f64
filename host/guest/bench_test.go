package guest

import (
	"testing"

	"github.com/hostd/hostd/abi"
)

// BenchmarkHandle measures the host's cost of a command. The guest does next to
// nothing: its function has a dozen instructions.
func BenchmarkHandle(b *testing.B) {
	g := start(b, Options{}, &testGuest{})
	frames := make([]byte, 150)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := g.Handle(0, frames, Env{Now: 1, Seed: 2}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkApply(b *testing.B) {
	g := start(b, Options{}, &testGuest{})
	frames := make([]byte, 64<<10)
	b.ReportAllocs()
	b.SetBytes(int64(len(frames)))
	for b.Loop() {
		if err := g.Apply(0, frames); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkHostCall measures a command whose guest asks the host for the time
// 100 times.
func BenchmarkHostCall(b *testing.B) {
	code := []byte{}
	for range 100 {
		code = append(code, cat(call(0), op(opDrop))...)
	}
	guest := &testGuest{bodies: map[string][]byte{abi.ExportHandle: cat(code, i64c(0))}}
	g := start(b, Options{}, guest.importing("hostd", "now"))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := g.Handle(0, nil, Env{}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkInstantiate(b *testing.B) {
	m := mustCompile(b, newEngine(b, Options{}), (&testGuest{}).build())
	b.ReportAllocs()
	for b.Loop() {
		g, err := m.Instantiate(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		if err := g.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

// TestCallsDoNotAllocate checks that the hot path does not allocate.
func TestCallsDoNotAllocate(t *testing.T) {
	g := start(t, Options{}, (&testGuest{bodies: map[string][]byte{
		abi.ExportQuery: cat(call(0), op(opDrop), stateSpan())}}).importing("hostd", "now"))
	frames := make([]byte, 150)
	calls := map[string]func() error{
		"load":     func() error { _, err := g.Load(0, 1, frames); return err },
		"apply":    func() error { return g.Apply(0, frames) },
		"handle":   func() error { _, err := g.Handle(0, frames, Env{Now: 1}); return err },
		"query":    func() error { _, err := g.Query(0, frames, Env{Now: 1}); return err },
		"snapshot": func() error { _, err := g.Snapshot(0); return err },
		"drop":     func() error { return g.Drop(1) },
	}
	for name, call := range calls {
		if n := testing.AllocsPerRun(100, func() {
			if err := call(); err != nil {
				t.Fatal(err)
			}
		}); n != 0 {
			t.Errorf("%s allocates %v times", name, n)
		}
	}
}
