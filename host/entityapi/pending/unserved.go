package pending

import (
	"context"

	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
)

const (
	// unservedPage and unservedPages bound the timers that Unserved looks at. The
	// page is the largest that other nodes give.
	unservedPage  = 500
	unservedPages = 20
	// unservedShown is how many timers Unserved names.
	unservedShown = 3
	// unservedCommands is how many commands Unserved tells apart.
	unservedCommands = 16
)

// Unserved is which timers of a type call commands that a module does not have.
type Unserved struct {
	Timers   int                                        // how many
	Commands map[string]int                             // of each command, of some
	First    []*entityv1.ListTimersResponse_EntityTimer // those that are due first, few
	// Partial says that not all timers of the type were looked at.
	Partial bool
}

// Unserved looks at the timers of a type that are due first, up to a bound, on all
// nodes. serves reports whether the module has a command. It reads by pages, like
// ListTimers, and never on an executor or while entries are applied.
func (s *Service) Unserved(ctx context.Context, entityType string, serves func(command string) bool) (out Unserved, err error) {
	if s.Source == nil {
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
