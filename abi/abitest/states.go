package abitest

import (
	"errors"
	"fmt"

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/abi/manifest"
	"github.com/hostd/hostd/abi/schema"
)

// earlierTries is how many states of each version the suite tries.
const earlierTries = 8

// earlier checks the earlier state versions that the manifest lists: two
// instances must read a state drawn from the version's schema in the same way,
// and snapshot it as a state of the current version.
func (t *typeSuite) earlier() error {
	tried := 0
	for i := range t.def.ReadsStates {
		form := &t.def.ReadsStates[i]
		if form.Schema == nil || t.def.Encoding != manifest.JSON {
			continue
		}
		s, err := schema.Inspect(form.Schema, t.report.Manifest.Defs)
		if err != nil {
			return fmt.Errorf("the schema of states of version %d: %w", form.Version, err)
		}
		random := t.random(uint64(t.typ)<<8 + 9 + uint64(i)<<32)
		for range earlierTries {
			state, ok := s.Sample(random)
			if !ok {
				break
			}
			tried++
			if err := t.checkMigration(state, form.Version); err != nil {
				return fmt.Errorf("the state %.100q of version %d: %w", state, form.Version, err)
			}
		}
	}
	if tried == 0 {
		return skip("the manifest has no schema of an earlier state")
	}
	return nil
}

func (t *typeSuite) checkMigration(state []byte, version int) error {
	var made [2][]byte
	input := abi.AppendSequence(abi.AppendSnapshot(abi.AppendEntityID(nil, "earlier"), state), 1)
	input = abi.AppendStateVersion(input, uint64(version))
	for i := range made {
		err := t.with(t.options.Seed+uint64(i), func(g Instance) (err error) {
			if err = t.mustLoad(g, 0, input); err == nil {
				made[i], err = t.snapshot(g, 0)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	if err := same("what two instances make of it", made[0], made[1]); err != nil {
		return err
	}
	return t.with(t.options.Seed+2, func(g Instance) error {
		err := t.mustLoad(g, 0, abi.AppendSequence(abi.AppendSnapshot(abi.AppendEntityID(nil, "earlier"), made[0]), 1))
		if err != nil {
			return errors.Join(errors.New("what it is migrated to does not load"), err)
		}
		again, err := t.snapshot(g, 0)
		if err != nil {
			return err
		}
		return same("a migrated state, and its snapshot loaded,", made[0], again)
	})
}
