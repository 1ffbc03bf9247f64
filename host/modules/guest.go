package modules

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/host/entity"
	"github.com/hostd/hostd/host/guest"
	"github.com/hostd/hostd/host/modules/trial"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// moduleGuest adapts an instance of the engine to entity.Guest for executors.
type moduleGuest struct {
	*guest.Instance
	faults *faultCounts
	fuel   int64 // budget that was set last; 0 is the engine's default

	lines  *GuestLines
	module journal.Digest
	about  sharding.EntityID // entity being called; it has no id while the guest starts

	profiles *profiles
	shadows  *trial.Watches
}

// About implements entity.Guest.
func (g *moduleGuest) About(e sharding.EntityID) {
	g.about = e
	g.Sample(g.profiles.running(e.Type))
}

// entity returns the entity that the guest is called for.
func (g *moduleGuest) entity() (entityType, id string) { return g.about.Type, g.about.ID }

// line stores a line that the guest writes.
func (g *moduleGuest) line(version abi.LogLevel, text []byte) {
	g.lines.Add(g.about, g.module, LineLevel(min(max(version, abi.LogDebug), abi.LogError)-abi.LogDebug), text)
}

// instantiate creates an instance for entities of a type.
func (t *Types) instantiate(ctx context.Context, m *guest.Module, opts guest.InstanceOptions, module journal.Digest, entityType string) (entity.Guest, error) {
	g := &moduleGuest{faults: &t.faults, lines: t.lines, module: module, about: sharding.EntityID{Type: entityType}, profiles: &t.profiles, shadows: t.settings.Shadows}
	opts.Lines, opts.About = g.line, g.entity
	var err error
	if g.Instance, err = m.InstantiateWith(ctx, opts); err != nil {
		t.faults.count(err)
		return nil, err
	}
	g.Sample(t.profiles.running(entityType))
	return g, nil
}

// env returns the engine's environment for a call and sets the call's budget.
func (g *moduleGuest) env(env entity.Env) guest.Env {
	if env.Fuel != g.fuel {
		g.fuel = env.Fuel
		g.SetBudgets(guest.Budgets{Command: env.Fuel, Query: env.Fuel})
	}
	return guest.Env{Now: env.Now, Seed: env.Seed, Deadline: env.Deadline, Long: env.Long}
}

func (g *moduleGuest) Load(typeIndex uint32, handle uint64, frames []byte) (bool, error) {
	if g.about.ID == "" { // the guest did not exist when the first call began
		frames := abi.NewReader(frames)
		if f, ok, err := frames.Next(); ok && err == nil && f.Kind == abi.InEntityID {
			g.about.ID = string(f.Body)
		}
	}
	status, err := g.Instance.Load(typeIndex, handle, frames)
	return status == abi.LoadDone, g.convertError(err)
}

func (g *moduleGuest) Apply(handle uint64, frames []byte) error {
	return g.convertError(g.Instance.Apply(handle, frames))
}

func (g *moduleGuest) Snapshot(handle uint64) ([]byte, error) {
	out, err := g.Instance.Snapshot(handle)
	return out, g.convertError(err)
}

func (g *moduleGuest) Drop(handle uint64) error { return g.convertError(g.Instance.Drop(handle)) }

func (g *moduleGuest) Handle(handle uint64, frames []byte, env entity.Env) ([]byte, error) {
	var begun time.Time
	watched := env.Counts.IsWatched()
	if watched {
		begun = time.Now()
	}
	out, err := g.Instance.Handle(handle, frames, g.env(env))
	if watched {
		env.Counts.Command(time.Since(begun), err == nil && rejects(out))
	}
	if w := g.shadows.Of(g.about.Type); w.Takes(g.module, env.Seed) {
		g.offer(w, frames, out, env, err)
	}
	return out, g.convertError(err)
}

// offer queues a command for the shadow module, which decides it outside of the
// executors. It does not offer an aborted call, because the comparison would
// show nothing.
func (g *moduleGuest) offer(w *trial.Watch, frames, out []byte, env entity.Env, err error) {
	if errors.Is(err, guest.ErrDeadline) || errors.Is(err, guest.ErrInterrupted) {
		return
	}
	w.Offer(trial.Command{Entity: g.about, Input: frames, Output: out, Failed: err != nil, Now: env.Now, Seed: env.Seed, Fuel: g.Fuel()})
}

// rejects reports whether a guest's answer rejects the command.
func rejects(out []byte) bool {
	for frames := abi.NewReader(out); ; {
		switch f, ok, err := frames.Next(); {
		case err != nil || !ok:
			return false
		case f.Kind == abi.OutReject:
			return true
		}
	}
}

func (g *moduleGuest) Query(handle uint64, frames []byte, env entity.Env) ([]byte, error) {
	out, err := g.Instance.Query(handle, frames, g.env(env))
	return out, g.convertError(err)
}

// convertError counts a fault of the guest, and converts the errors of aborted calls
// to the errors that executors expect.
func (g *moduleGuest) convertError(err error) error {
	if err == nil {
		return nil
	}
	switch {
	case errors.Is(err, guest.ErrDeadline):
		return request.ErrDeadline
	case errors.Is(err, guest.ErrInterrupted):
		return request.ErrStopped
	}
	g.faults.count(err)
	var fault *guest.Fault
	if errors.As(err, &fault) {
		text := err.Error()
		if words := fault.LastWords(); words != "" && !strings.Contains(text, words) {
			text += "; the guest wrote: " + words
		}
		g.lines.Add(g.about, g.module, LineFault, []byte(text))
	}
	return err
}

// faultCounts counts a node's guest faults by kind.
type faultCounts [guest.FaultKinds]atomic.Uint64

func (f *faultCounts) count(err error) {
	var fault *guest.Fault
	if errors.As(err, &fault) {
		f[fault.Kind].Add(1)
	}
}
