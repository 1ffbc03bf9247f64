package modules

import (
	"errors"
	"sync/atomic"

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/host/engine"
	"github.com/hostd/hostd/host/entity/binding"
	"github.com/hostd/hostd/host/request"
)

// guest lets lanes drive an engine's instance.
type guest struct {
	*engine.Instance
	faults *faultCounts
	fuel   int64 // the budget that was set last; 0 is the engine's
}

// env is what the engine gives the guest, within the call's own budget.
func (g *guest) env(env binding.Env) engine.Env {
	if env.Fuel != g.fuel {
		g.fuel = env.Fuel
		g.SetBudgets(engine.Budgets{Command: env.Fuel, Query: env.Fuel})
	}
	return engine.Env{Now: env.Now, Seed: env.Seed, Deadline: env.Deadline, Long: env.Long}
}

func (g *guest) Load(typeIndex uint32, handle uint64, frames []byte) (bool, error) {
	status, err := g.Instance.Load(typeIndex, handle, frames)
	return status == abi.LoadDone, g.ended(err)
}

func (g *guest) Apply(handle uint64, frames []byte) error {
	return g.ended(g.Instance.Apply(handle, frames))
}

func (g *guest) Snapshot(handle uint64) ([]byte, error) {
	out, err := g.Instance.Snapshot(handle)
	return out, g.ended(err)
}

func (g *guest) Drop(handle uint64) error { return g.ended(g.Instance.Drop(handle)) }

func (g *guest) Handle(handle uint64, frames []byte, env binding.Env) ([]byte, error) {
	out, err := g.Instance.Handle(handle, frames, g.env(env))
	return out, g.ended(err)
}

func (g *guest) Query(handle uint64, frames []byte, env binding.Env) ([]byte, error) {
	out, err := g.Instance.Query(handle, frames, g.env(env))
	return out, g.ended(err)
}

// ended counts a fault of the guest, and says in the lanes' words that a call
// was cut off.
func (g *guest) ended(err error) error {
	if err == nil {
		return nil
	}
	switch {
	case errors.Is(err, engine.ErrDeadline):
		return request.ErrDeadline
	case errors.Is(err, engine.ErrInterrupted):
		return request.ErrStopped
	}
	g.faults.count(err)
	return err
}

// faultCounts are a node's guest faults by kind.
type faultCounts [engine.FaultKinds]atomic.Uint64

func (f *faultCounts) count(err error) {
	var fault *engine.Fault
	if errors.As(err, &fault) {
		f[fault.Kind].Add(1)
	}
}
