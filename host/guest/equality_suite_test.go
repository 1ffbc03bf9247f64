package guest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"hash"
	"testing"

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/abi/abitest"
)

// transcript keeps a digest of all the answers that a module's instances give
// to the conformance suite.
type transcript struct {
	manifest []byte
	open     func(ctx context.Context, seed uint64) (*Instance, error)
	sum      hash.Hash
	calls    int
}

func (r *transcript) Describe() ([]byte, error) { return r.manifest, nil }

func (r *transcript) Open(ctx context.Context, seed uint64) (abitest.Instance, error) {
	g, err := r.open(ctx, seed)
	return noted{g, r}, err
}

// note adds an outcome and returns it.
func (r *transcript) note(out []byte, err error) ([]byte, error) {
	fmt.Fprintf(r.sum, "%d %x %v\n", r.calls, out, err)
	r.calls++
	return out, err
}

// noted is an instance whose answers are recorded.
type noted struct {
	g *Instance
	r *transcript
}

func (n noted) Load(typ uint32, handle uint64, frames []byte) (abi.LoadStatus, error) {
	status, err := n.g.Load(typ, handle, frames)
	n.r.note([]byte{byte(status)}, err)
	return status, err
}

func (n noted) Apply(handle uint64, frames []byte) error {
	_, err := n.r.note(nil, n.g.Apply(handle, frames))
	return err
}

func (n noted) Handle(handle uint64, frames []byte, env abitest.Env) ([]byte, error) {
	return n.r.note(n.g.Handle(handle, frames, Env{Now: env.Now, Seed: env.Seed}))
}

func (n noted) Query(handle uint64, frames []byte, env abitest.Env) ([]byte, error) {
	return n.r.note(n.g.Query(handle, frames, Env{Now: env.Now, Seed: env.Seed}))
}

func (n noted) Snapshot(handle uint64) ([]byte, error) { return n.r.note(n.g.Snapshot(handle)) }

func (n noted) Drop(handle uint64) error {
	_, err := n.r.note(nil, n.g.Drop(handle))
	return err
}

func (n noted) Close() error {
	if n.g.module.compiled == nil {
		return nil // an unmetered instance is closed at the end of the test
	}
	return n.g.Close()
}

// suite runs the conformance suite on a module, unmodified or metered, and
// returns the report and the digest of the answers.
func suite(t *testing.T, e *Engine, wasm []byte, metered bool) (report string, sum []byte) {
	t.Helper()
	m := mustCompile(t, e, wasm)
	manifest, err := instantiate(t, m).describe()
	if err != nil {
		t.Fatal(err)
	}
	plain, err := e.runtime.CompileModule(t.Context(), wasm)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { plain.Close(context.Background()) })
	r := &transcript{manifest: bytes.Clone(manifest), sum: sha256.New()}
	r.open = func(ctx context.Context, seed uint64) (*Instance, error) {
		if metered {
			return m.InstantiateVaried(ctx, 1+int64(seed>>1), seed)
		}
		g := plainInstance(t, e, plain)
		g.pureClock, g.pureSeed = 1+int64(seed>>1), seed
		return g, nil
	}
	samples := abitest.Samples{"counter": {"add": {[]byte(`{"amount":1}`), []byte(`{"amount":"-7"}`)}}}
	got, err := abitest.Run(t.Context(), r, abitest.Options{Seed: 3, Commands: 30, Samples: samples})
	if err != nil || !got.OK() {
		t.Fatalf("metered %v: %v\n%v", metered, err, got)
	}
	if r.calls < 500 {
		t.Errorf("the suite made %d calls: it shows nothing", r.calls)
	}
	return got.String(), r.sum.Sum(nil)
}

// TestMeteringKeepsConformanceResults runs the conformance suite on
// unmodified and metered guests, each compiled and interpreted. The report
// and every answer must be equal. A guest in Go is only compiled, because an
// interpreted Go guest takes a second to start, and the suite starts some
// twenty instances; TestMeteringKeepsGuestResults interprets it.
func TestMeteringKeepsConformanceResults(t *testing.T) {
	for _, name := range equalGuests[1:] {
		t.Run(name, func(t *testing.T) {
			wasm := equalGuest(t, name)
			var report string
			var sum []byte
			for _, interpreter := range []bool{false, true} {
				if interpreter && name == "counter" {
					continue
				}
				e := newEngine(t, Options{Interpreter: interpreter})
				for _, metered := range []bool{false, true} {
					gotReport, got := suite(t, e, wasm, metered)
					if sum == nil {
						report, sum = gotReport, got
					}
					if gotReport != report || !bytes.Equal(got, sum) {
						t.Errorf("interpreter %v, metered %v: the answers are others\n%s\n%s", interpreter, metered, gotReport, report)
					}
				}
			}
		})
	}
}
