package entityapi

import (
	"context"

	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
)

const (
	// unservedPage and unservedPages limit the timers that FindUnserved
	// examines. The page size is the largest that other nodes return.
	unservedPage  = 500
	unservedPages = 20
	// unservedShown is how many timers FindUnserved names.
	unservedShown = 3
	// unservedCommands limits the commands that FindUnserved counts separately.
	unservedCommands = 16
)

// UnservedTimers counts the timers of a type that call commands which a module does
// not have.
type UnservedTimers struct {
	Timers   int                                        // number of timers whose command the module does not have
	Commands map[string]int                             // counts by command, for at most unservedCommands
	First    []*entityv1.ListTimersResponse_EntityTimer // the timers that are due first, up to unservedShown
	// Partial means that not all timers of the type were examined.
	Partial bool
}

// FindUnserved examines the timers of a type on all nodes, in the order of their due
// times, up to a limit. serves reports whether the module has a command. It
// reads pages, like ListTimers, and never runs on an executor or during the
// apply of entries.
func (s *handler) FindUnserved(ctx context.Context, entityType string, serves func(command string) bool) (out UnservedTimers, err error) {
	if s.Pending == nil {
		return out, nil
	}
	ctx, cancel := context.WithTimeout(ctx, nodeTime)
	defer cancel()
	out.Commands = map[string]int{}
	m := &entityv1.ListTimersRequest{EntityType: entityType, PageSize: unservedPage}
	for range unservedPages {
		page, err := s.listTimers(ctx, m)
		if err != nil {
			return out, err
		}
		for _, t := range page.GetTimers() {
			command := t.GetTimer().GetCommand()
			if serves(command) {
				continue
			}
			out.Timers++
			if _, known := out.Commands[command]; known || len(out.Commands) < unservedCommands {
				out.Commands[command]++
			}
			if len(out.First) < unservedShown {
				out.First = append(out.First, t)
			}
		}
		out.Partial = out.Partial || len(page.GetMissingNodes()) > 0 || page.GetShardsRead() < page.GetShardCount()
		if m.PageToken = page.GetNextPageToken(); m.PageToken == "" {
			return out, nil
		}
	}
	out.Partial = true
	return out, nil
}
