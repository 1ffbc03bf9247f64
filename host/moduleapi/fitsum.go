package moduleapi

import (
	"maps"
	"slices"

	modulev1 "github.com/hostd/hostd/api/gen/hostd/module/v1"
	"github.com/hostd/hostd/host/modules"
)

// fitSum sums the results of the compatibility checks of several shards. It is
// not safe for concurrent use.
type fitSum struct {
	out     modulev1.FitResponse
	missing map[string]uint64
}

func newFitSum() *fitSum { return &fitSum{missing: map[string]uint64{}} }

// unread counts shards that were not checked.
func (s *fitSum) unread(shards int) { s.out.UnreadShards += uint32(shards) }

// add adds the result of one shard.
func (s *fitSum) add(one *modulev1.FitResponse) {
	for _, m := range one.GetMissing() {
		if _, known := s.missing[m.GetEventType()]; known || len(s.missing) < modules.MaxFitMissing {
			s.missing[m.GetEventType()] += m.GetCount()
		}
	}
	room := max(0, modules.MaxFitFaults-len(s.out.Faults))
	s.out.Faults = append(s.out.Faults, one.GetFaults()[:min(room, len(one.GetFaults()))]...)
	room = max(0, modules.MaxFitFaults-len(s.out.Differences))
	s.out.Differences = append(s.out.Differences, one.GetDifferences()[:min(room, len(one.GetDifferences()))]...)
	for _, module := range one.GetSnapshotsOf() {
		if !slices.Contains(s.out.SnapshotsOf, module) {
			s.out.SnapshotsOf = append(s.out.SnapshotsOf, module)
		}
	}
	s.out.Differing += one.GetDiffering()
	s.out.Unreadable += one.GetUnreadable()
	s.out.Entities += one.GetEntities()
	s.out.Failing += one.GetFailing()
	s.out.Present = s.out.Present || one.GetPresent()
	s.out.UnreadShards += one.GetUnreadShards()
}

// answer returns the sum, with its event types in order.
func (s *fitSum) answer() *modulev1.FitResponse {
	for _, name := range slices.Sorted(maps.Keys(s.missing)) {
		s.out.Missing = append(s.out.Missing, &modulev1.FitResponse_MissingEvents{EventType: name, Count: s.missing[name]})
	}
	slices.Sort(s.out.SnapshotsOf)
	return &s.out
}
