package guest

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/hostd/hostd/abi"
)

// TestBombs runs each hostile module of testdata/bombs.txt, compiled and
// interpreted. Either the module must be rejected, or its call must end with
// the fault that the file names, and the engine must keep no memory of the
// module.
func TestBombs(t *testing.T) {
	goroutines := runtime.NumGoroutine()
	defer func() {
		for end := time.Now().Add(time.Minute); runtime.NumGoroutine() > goroutines; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				stacks := make([]byte, 64<<10)
				t.Fatalf("there were %d goroutines before, and now\n%s", goroutines, stacks[:runtime.Stack(stacks, true)])
			}
		}
	}()
	for _, bomb := range readBombs(t) {
		t.Run(bomb.name, func(t *testing.T) {
			wasm := bomb.guest.build()
			bothEngines(t, func(t *testing.T, opts Options) {
				if opts.Interpreter && bomb.where == FaultForbidden.String() {
					t.Skip("the fuel of an interpreted test does not reach so far")
				}
				lines := new(lineCount)
				opts.Logger = slog.New(lines)
				opts.Limits = bomb.limits
				opts.Limits.StartFuel /= 100
				opts.Limits.LoadFuel /= 20
				opts.Limits.EventFuel /= 20
				if opts.Interpreter { // because the interpreter is about that much slower
					opts.Limits.StartFuel /= 100
					opts.Limits.LoadFuel /= 100
					opts.Limits.EventFuel /= 100
					opts.Limits.CommandFuel /= 200
					opts.Limits.QueryFuel /= 200
				}
				bomb.check(t, bomb.setOff(t, newEngine(t, opts), wasm))
				if most := 2 * (bomb.limits.LogLines + 1); lines.n > most { // two calls, each with one line that counts the dropped lines
					t.Errorf("%d lines are in the log, want at most %d", lines.n, most)
				}
			})
		})
	}
}

// lineCount is a log handler that counts its lines.
type lineCount struct {
	slog.Handler
	n int
}

func (c *lineCount) Enabled(context.Context, slog.Level) bool  { return true }
func (c *lineCount) Handle(context.Context, slog.Record) error { c.n++; return nil }
func (c *lineCount) WithAttrs([]slog.Attr) slog.Handler        { return c }
func (c *lineCount) WithGroup(string) slog.Handler             { return c }

// setOff compiles a bomb and makes its call.
func (b *bomb) setOff(t *testing.T, e *Engine, wasm []byte) error {
	t.Helper()
	m, err := e.Compile(t.Context(), [32]byte{}, wasm)
	if err != nil {
		return err
	}
	t.Cleanup(func() { m.Close() })
	g := instantiate(t, m)
	if _, err := g.Load(0, 0, nil); err != nil {
		return err
	}
	switch b.call {
	case abi.ExportHandle:
		var out []byte
		if out, err = g.Handle(0, nil, Env{}); err == nil { // check the output as an executor does
			if bad := abi.ParseOutput(new(abi.Output), out, abi.HandleEvents, &b.limits); bad != nil {
				err = g.Condemn(b.call, bad)
			}
		}
	case abi.ExportQuery:
		_, err = g.Query(0, nil, Env{})
	case abi.ExportApply:
		err = g.Apply(0, make([]byte, 100))
	case abi.ExportLoad:
		_, err = g.Load(0, 1, nil)
	case abi.ExportSnapshot:
		_, err = g.Snapshot(0)
	case abi.ExportDrop:
		err = g.Drop(0)
	}
	if err != nil {
		var fault *Fault
		lives := errors.As(err, &fault) && fault.Kind == FaultOutput // too large an answer leaves the instance alive
		if _, again := g.Handle(0, nil, Env{}); errors.Is(again, ErrInstanceDead) == lives {
			t.Errorf("after the fault a call gives %v", again)
		}
	}
	return err
}

func (b *bomb) check(t *testing.T, err error) {
	t.Helper()
	var refused *AdmissionError
	var fault *Fault
	switch {
	case b.kind == "lives" && err == nil:
	case b.kind == "refused" && errors.As(err, &refused):
		if refused.Where != b.where || !strings.Contains(refused.Reason, b.text) {
			t.Errorf("refused for %q: %q, want %q: %q", refused.Where, refused.Reason, b.where, b.text)
		}
	case b.kind == "fault" && errors.As(err, &fault):
		if fault.Kind.String() != b.where || !strings.Contains(fault.Message, b.text) && fault.Message != runtimeStackOverflow {
			t.Errorf("fault %v, want %q: %q", fault, b.where, b.text)
		}
	default:
		t.Errorf("ended with %v, want %s %s", err, b.kind, b.where)
	}
}
