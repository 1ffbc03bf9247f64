package moduleapi

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hostd/hostd/abi/manifest"
	"github.com/hostd/hostd/host/entityapi"
	"github.com/hostd/hostd/host/modules"
)

// unservedTimers returns warnings about pending timers of a type that call
// commands which the module does not have. It is called before the module
// serves the type. Such timers are no reason to reject the module, because they
// wait until a module has the commands.
func (s *handler) unservedTimers(ctx context.Context, entityType string, m *modules.Module) []string {
	if s.Timers == nil {
		return nil
	}
	is, err := manifest.Parse(m.Manifest)
	if err != nil {
		return nil // cannot happen: a module without a valid manifest is never stored
	}
	i := slices.IndexFunc(is.EntityTypes, func(t manifest.EntityType) bool { return t.Name == entityType })
	if i < 0 || is.EntityTypes[i].Commands == nil {
		return nil // the manifest lists no commands: the guest accepts any name
	}
	found, err := s.Timers.FindUnserved(ctx, entityType, func(command string) bool {
		return slices.ContainsFunc(is.EntityTypes[i].Commands, func(c manifest.Named) bool { return c.Name == command })
	})
	if err != nil {
		return []string{fmt.Sprintf("%s: its timers could not be checked, so some may call commands that the module does not have", entityType)}
	}
	return unservedWarnings(entityType, found)
}

func unservedWarnings(entityType string, found entityapi.UnservedTimers) (remarks []string) {
	if found.Timers > 0 {
		var commands, first []string
		for _, name := range slices.Sorted(maps.Keys(found.Commands)) {
			commands = append(commands, fmt.Sprintf("%s (%d)", name, found.Commands[name]))
		}
		for _, t := range found.First {
			first = append(first, fmt.Sprintf("%s of %s", t.GetTimer().GetName(), t.GetEntityId()))
		}
		remarks = append(remarks, fmt.Sprintf("%s: pending timers call commands that the module does not have: %d, of %s; first %s. They wait until a module has the commands, and ticks of schedules are skipped; 'hostd entity timers %s' lists them",
			entityType, found.Timers, strings.Join(commands, ", "), strings.Join(first, ", "), entityType))
	}
	if found.Partial {
		remarks = append(remarks, fmt.Sprintf("%s: not all of its timers were checked, so more may call commands that the module does not have", entityType))
	}
	return remarks
}
