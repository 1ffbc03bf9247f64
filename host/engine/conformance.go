package engine

import (
	"context"
)

// InstantiateVaried is Instantiate for tests of a guest's purity: while the
// guest evolves state, and while it starts, its clock stands at now, in unix
// nanoseconds, and its random stream has the seed given. A guest whose state
// depends on either, through the order of a map for one, shows it by another
// snapshot of the same history. now must not be 0: a Go guest does not start
// then.
func (m *Module) InstantiateVaried(ctx context.Context, now int64, seed uint64) (*Instance, error) {
	return m.InstantiateWith(ctx, InstanceOptions{pureClock: now, pureSeed: seed})
}
