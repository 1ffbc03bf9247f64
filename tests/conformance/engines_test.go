package conformance

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/host/guest"
	"github.com/hostd/hostd/tests/support/testkit"
)

// TestCompilerAndInterpreterAgree runs the same history of each example both
// compiled and interpreted. Every output, and the state after every tenth
// command, must be equal byte for byte. The compiler has miscompiled before,
// and the interpreter shares no code with it.
func TestCompilerAndInterpreterAgree(t *testing.T) {
	const seed, commands = 11, 200
	t.Logf("seed %d", seed)
	for name, make := range map[string]func(*rand.Rand) (command, payload string){
		"counter": func(r *rand.Rand) (string, string) {
			if r.IntN(10) == 0 {
				return "reset", ""
			}
			return "add", fmt.Sprintf(`{"amount":%d}`, int64(r.Uint64())>>r.IntN(64))
		},
		"account": func(r *rand.Rand) (string, string) {
			amount := fmt.Sprintf(`{"amount":%d}`, r.IntN(100)-2)
			return []string{"open", "deposit", "withdraw", "absent"}[r.IntN(4)], amount
		},
		"chain": func(r *rand.Rand) (string, string) {
			return "link", fmt.Sprintf(`{"n":%d}`, r.Uint32())
		},
	} {
		t.Run(name, func(t *testing.T) {
			if testing.Short() && name != "counter" {
				t.Skip("short: the counter stands for the others")
			}
			wasm := testkit.BuildExample(t, name)
			compiled := history(t, wasm, guest.Options{}, rand.New(rand.NewPCG(seed, 0)), commands, make)
			interpreted := history(t, wasm, guest.Options{Interpreter: true}, rand.New(rand.NewPCG(seed, 0)), commands, make)
			for i := range compiled {
				if !bytes.Equal(compiled[i], interpreted[i]) {
					t.Fatalf("result %d differs:\n%q compiled\n%q interpreted", i, compiled[i], interpreted[i])
				}
			}
		})
	}
}

// history runs random commands on one entity and returns all results.
func history(t *testing.T, wasm []byte, opts guest.Options, random *rand.Rand, commands int,
	command func(*rand.Rand) (string, string)) (results [][]byte) {
	t.Helper()
	e, err := guest.New(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close(t.Context())
	m, err := e.Compile(t.Context(), sha256.Sum256(wasm), wasm)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	g, err := m.Instantiate(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	if status, err := g.Load(0, 3, abi.AppendEntityID(nil, "entity")); err != nil || status != abi.LoadDone {
		t.Fatal(status, err)
	}
	sequence := uint64(0)
	for i := range commands {
		name, payload := command(random)
		out, err := g.Handle(3, request(sequence, name, payload), guest.Env{Now: int64(i), Seed: random.Uint64()})
		if err != nil {
			t.Fatalf("command %d: %v", i, err)
		}
		results = append(results, bytes.Clone(out))
		sequence += events(t, out)
		if i%10 == 9 {
			state, err := g.Snapshot(3)
			if err != nil {
				t.Fatal(err)
			}
			results = append(results, bytes.Clone(state))
		}
	}
	if sequence == 0 {
		t.Fatal("no command had an event: the history shows nothing")
	}
	return append(results, binary.LittleEndian.AppendUint64(nil, sequence))
}

// events counts the event frames of an output.
func events(t *testing.T, output []byte) (n uint64) {
	t.Helper()
	for reader := abi.NewReader(output); ; {
		frame, ok, err := reader.Next()
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			return n
		}
		if frame.Kind == abi.OutEvent {
			n++
		}
	}
}
