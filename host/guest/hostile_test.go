package guest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/hostd/hostd/abi"
)

// hostileEnd is the end of the guests' memory in these tests.
const hostileEnd = 24 * pageBytes

// hostileNumbers are pointers and lengths that a harmful guest might try, and
// some valid ones.
var hostileNumbers = []uint32{
	0, 1, 7, 8, 64, scratchAt, bufferAt, 1 << 16, 1<<20 - 1, 1 << 20, 1<<20 + 1, hostileEnd - 8, hostileEnd - 7, hostileEnd - 1, hostileEnd, hostileEnd + 1,
	2 << 20, 2<<20 + 1, 64 << 20, math.MaxInt32, math.MaxInt32 + 1, math.MaxUint32 - 8, math.MaxUint32 - 7, math.MaxUint32 - 1, math.MaxUint32,
}

// obedient is a guest that answers with the span in its input. Apply stores a
// span, which Snapshot then returns. The address of the stored span is also
// added to the address that the guest returns for its input buffer.
func obedient() *testGuest {
	word := func(at int32) []byte { return cat(i32c(at), op(opI64Load, aligned(3))) }
	return &testGuest{bodies: map[string][]byte{
		abi.ExportHandle:   word(bufferAt),
		abi.ExportQuery:    word(bufferAt),
		abi.ExportApply:    cat(i32c(scratchAt), word(bufferAt), op(opI64Store, aligned(3)), i32c(0)),
		abi.ExportSnapshot: word(scratchAt),
		abi.ExportBuffer:   cat(i32c(bufferAt), word(scratchAt), op(opI32WrapI64), op(opI32Add)),
	}}
}

// TestHostileSpans lets a guest answer every call that returns a span or an
// address with hostile values. If the span lies inside its memory and is not
// too long, the bytes are returned; otherwise the call is a fault.
func TestHostileSpans(t *testing.T) {
	bothEngines(t, func(t *testing.T, opts Options) {
		m := mustCompile(t, newEngine(t, opts), obedient().build())
		limits := abi.DefaultLimits()
		for _, call := range []struct {
			name  string
			limit int
			span  func(g *Instance, word []byte) ([]byte, error)
		}{
			{abi.ExportHandle, limits.OutputBytes, func(g *Instance, word []byte) ([]byte, error) { return g.Handle(0, word, Env{}) }},
			{abi.ExportQuery, limits.OutputBytes, func(g *Instance, word []byte) ([]byte, error) { return g.Query(0, word, Env{}) }},
			{abi.ExportSnapshot, limits.SnapshotBytes, func(g *Instance, word []byte) ([]byte, error) {
				if err := g.Apply(0, word); err != nil {
					return nil, err
				}
				return g.Snapshot(0)
			}},
		} {
			answered, refused := 0, 0
			for _, address := range hostileNumbers {
				for _, length := range hostileNumbers {
					span := abi.PackSpan(address, length)
					in := length == 0 || uint64(address)+uint64(length) <= hostileEnd && int(length) <= call.limit
					out, err := onNew(t, m, func(g *Instance) ([]byte, error) {
						return call.span(g, binary.LittleEndian.AppendUint64(nil, uint64(span)))
					})
					var fault *Fault
					switch {
					case in && (err != nil || len(out) != int(length)):
						t.Errorf("%s: %d bytes at %d: got %d, %v", call.name, length, address, len(out), err)
					case !in && (!errors.As(err, &fault) || fault.Kind != FaultSpan && fault.Kind != FaultOutput):
						t.Errorf("%s: %d bytes at %d: got %d, %v; want a fault", call.name, length, address, len(out), err)
					case in:
						answered++
					default:
						refused++
					}
				}
			}
			if answered < 50 || refused < 50 {
				t.Errorf("%s: %d spans are in order and %d are not: the test shows nothing", call.name, answered, refused)
			}
		}
		for _, address := range hostileNumbers {
			const need = 5000 // so the guest is asked for a buffer of 8192 bytes
			in := address != 0 && uint64(address)+8192 <= hostileEnd
			_, err := onNew(t, m, func(g *Instance) ([]byte, error) {
				move := binary.LittleEndian.AppendUint64(nil, uint64(address-bufferAt))
				if err := g.Apply(0, move); err != nil {
					return nil, err
				}
				return nil, g.Apply(0, make([]byte, need))
			})
			var fault *Fault
			if in != (err == nil) || err != nil && (!errors.As(err, &fault) || fault.Kind != FaultSpan && fault.Kind != FaultNoBuffer) {
				t.Errorf("a buffer at %d: %v", address, err)
			}
		}
	})
}

// onNew calls a new instance, because a fault kills it, and copies the result.
func onNew(t *testing.T, m *Module, call func(*Instance) ([]byte, error)) ([]byte, error) {
	t.Helper()
	g, err := m.Instantiate(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	out, err := call(g)
	return bytes.Clone(out), err
}

// TestHostileArguments calls every host function from a guest with hostile
// pointers and lengths from its input. Each call must end with a result or a
// fault of the guest, and other instances must continue to work.
func TestHostileArguments(t *testing.T) {
	combinations := 400
	if testing.Short() {
		combinations = 50
	}
	bothEngines(t, func(t *testing.T, opts Options) {
		e := newEngine(t, opts)
		neighbour := instantiate(t, mustCompile(t, e, (&testGuest{}).build()))
		ended := map[string]int{}
		for i, f := range hostFunctions() {
			random := rand.New(rand.NewPCG(uint64(i), 0))
			var code []byte
			for at, kind := range []byte(f.Params) {
				load := byte(opI32Load)
				if kind == typeI64 {
					load = opI64Load
				}
				code = cat(code, i32c(int32(bufferAt+8*at)), op(load, aligned(2)))
			}
			code = cat(code, call(0))
			if f.Results != "" {
				code = append(code, opDrop)
			}
			guest := (&testGuest{bodies: map[string][]byte{abi.ExportHandle: cat(code, i64c(0))}}).importing(f.module, f.name)
			m := mustCompile(t, e, guest.build())
			for range combinations {
				var input []byte
				for range f.Params {
					number := hostileNumbers[random.IntN(len(hostileNumbers))]
					input = binary.LittleEndian.AppendUint64(input, uint64(number)|uint64(random.IntN(2))<<63)
				}
				_, err := onNew(t, m, func(g *Instance) ([]byte, error) { return g.Handle(0, input, Env{Now: 1, Seed: 2}) })
				var fault *Fault
				switch {
				case err == nil:
					ended["result"]++
				case errors.As(err, &fault) && (fault.Kind == FaultForbidden || fault.Kind == FaultFuel || fault.Kind == FaultTrap):
					ended[fault.Kind.String()]++
				default:
					t.Errorf("%s.%s with % x: %v", f.module, f.name, input, err)
				}
			}
		}
		if _, err := neighbour.Handle(0, []byte("x"), Env{}); err != nil {
			t.Errorf("the neighbour: %v", err)
		}
		if ended["result"] == 0 || ended[FaultForbidden.String()] == 0 {
			t.Errorf("the calls ended with %v: the test shows nothing", ended)
		}
		t.Log(fmt.Sprint(len(hostFunctions()), " functions: ", ended))
	})
}
