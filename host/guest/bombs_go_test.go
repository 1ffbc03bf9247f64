package guest

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/hostd/hostd/abi"
)

// TestGoBombs triggers what a guest in Go can do with its runtime: leave
// spinning goroutines behind, block forever, and exhaust its memory, stack,
// events and reply. Each call must end, and the engine must keep no memory of
// the instance.
func TestGoBombs(t *testing.T) {
	if testing.Short() {
		t.Skip("short: builds a guest in Go")
	}
	out := filepath.Join(t.TempDir(), "hostile.wasm")
	build := exec.Command("go", "build", "-buildmode=c-shared", "-ldflags=-s -w", "-o", out, "../../cmd/hostd/internal/bench/hostile")
	build.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm")
	if said, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, said)
	}
	wasm, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	goroutines := runtime.NumGoroutine()
	e := newEngine(t, Options{})
	m := mustCompile(t, e, wasm)
	for _, bomb := range []struct {
		commands []string
		kind     FaultKind // how the last command ends
	}{
		{[]string{"loop"}, FaultFuel},
		{[]string{"goroutines"}, FaultFuel},
		{[]string{"block"}, FaultTrap},
		{[]string{"leak", "leak", "block"}, FaultFuel},
		{[]string{"memory"}, FaultTrap},
		{[]string{"recursion"}, FaultStack},
		{[]string{"events"}, FaultFuel},
		{[]string{"reply"}, FaultOutput},
	} {
		g, err := m.Instantiate(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := g.Load(0, 0, abi.AppendEntityID(nil, "x")); err != nil {
			t.Fatal(err)
		}
		for i, name := range bomb.commands {
			_, err = g.Handle(0, abi.AppendName(abi.AppendSequence(nil, uint64(i)), name), Env{Now: 1})
			if i < len(bomb.commands)-1 && err != nil {
				t.Errorf("%v: command %d: %v", bomb.commands, i, err)
			}
		}
		var fault *Fault
		if !errors.As(err, &fault) || fault.Kind != bomb.kind {
			t.Errorf("%v ended with %v after %d units, want %v", bomb.commands, err, g.Fuel(), bomb.kind)
		}
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	}
	if usage := e.Usage(); usage != (Usage{}) {
		t.Errorf("in the end there are %+v", usage)
	}
	for end := time.Now().Add(10 * time.Second); runtime.NumGoroutine() > goroutines; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("there were %d goroutines before, and now %d", goroutines, runtime.NumGoroutine())
		}
	}
}
