package guest

import (
	"context"
	"errors"

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/abi/manifest"
	"github.com/hostd/hostd/host/guest/wasm"
)

// The child process that compiled a module also tries it before it is accepted.
// If a module describes itself and creates, snapshots, loads and drops an
// entity of each of its types without a fault, it will not fail on the first
// real entity. The trial does not check the answers, which is the job of the
// conformance suite.

// trialID is the id of the entities in a trial.
const trialID = "trial"

// try runs the trial of a module. The error is an *AdmissionError if it fails.
func (m *Module) try(ctx context.Context) error {
	g, err := m.Instantiate(ctx)
	if err == nil {
		for index, t := range m.manifest.EntityTypes {
			if err = g.tryType(uint32(index), t); err != nil {
				break
			}
		}
		err = errors.Join(err, g.Close())
	}
	var fault *Fault
	if errors.As(err, &fault) {
		return wasm.Refuse("trial", "%s", fault.Error())
	}
	return err
}

// tryType creates an entity, loads a second entity from its snapshot and
// drops both.
func (g *Instance) tryType(index uint32, t manifest.EntityType) error {
	begin := abi.AppendEntityID(nil, trialID)
	if err := g.mustLoad(t, index, 0, abi.AppendSequence(begin, 0)); err != nil {
		return err
	}
	state, err := g.Snapshot(0)
	if err != nil {
		return err
	}
	if len(state) > 0 {
		begin = abi.AppendSnapshot(begin, state)
	}
	if err := g.mustLoad(t, index, 1, abi.AppendSequence(begin, 0)); err != nil {
		return err
	}
	if t.Kind.IsReplayed() {
		if err := g.Apply(1, nil); err != nil {
			return err
		}
	}
	if _, err := g.Snapshot(1); err != nil {
		return err
	}
	return errors.Join(g.Drop(0), g.Drop(1))
}

func (g *Instance) mustLoad(t manifest.EntityType, index uint32, handle uint64, frames []byte) error {
	switch status, err := g.Load(index, handle, frames); {
	case err != nil:
		return err
	case status != abi.LoadDone:
		return wasm.Refuse("trial", "%[1]s returned %[3]d for a new entity of type %[2]s", abi.ExportLoad, t.Name, status)
	}
	return nil
}
