package moduleapi

import (
	"maps"
	"slices"

	modulev1 "github.com/hostd/hostd/api/gen/hostd/module/v1"
	"github.com/hostd/hostd/host/modules"
)

// compatibilitySum sums the results of the compatibility checks of several shards. It is
// not safe for concurrent use.
type compatibilitySum struct {
	out     modulev1.CheckCompatibilityResponse
	missing map[string]uint64
}

func newCompatibilitySum() *compatibilitySum { return &compatibilitySum{missing: map[string]uint64{}} }

// unread counts shards that were not checked.
func (s *compatibilitySum) unread(shards int) { s.out.UncheckedShards += uint32(shards) }

// add adds the result of one shard.
func (s *compatibilitySum) add(one *modulev1.CheckCompatibilityResponse) {
	for _, m := range one.GetMissing() {
		if _, known := s.missing[m.GetEventType()]; known || len(s.missing) < modules.MaxMissingEvents {
			s.missing[m.GetEventType()] += m.GetCount()
		}
	}
	room := max(0, modules.MaxReplayFaults-len(s.out.Faults))
	s.out.Faults = append(s.out.Faults, one.GetFaults()[:min(room, len(one.GetFaults()))]...)
	room = max(0, modules.MaxReplayFaults-len(s.out.Differences))
	s.out.Differences = append(s.out.Differences, one.GetDifferences()[:min(room, len(one.GetDifferences()))]...)
	for _, module := range one.GetSnapshotDigests() {
		if !slices.Contains(s.out.SnapshotDigests, module) {
			s.out.SnapshotDigests = append(s.out.SnapshotDigests, module)
		}
	}
	s.out.DifferingEntities += one.GetDifferingEntities()
	s.out.UnreadableEntities += one.GetUnreadableEntities()
	s.out.Entities += one.GetEntities()
	s.out.FaultyEntities += one.GetFaultyEntities()
	s.out.Present = s.out.Present || one.GetPresent()
	s.out.UncheckedShards += one.GetUncheckedShards()
}

// answer returns the sum, with its event types in order.
func (s *compatibilitySum) answer() *modulev1.CheckCompatibilityResponse {
	for _, name := range slices.Sorted(maps.Keys(s.missing)) {
		s.out.Missing = append(s.out.Missing, &modulev1.CheckCompatibilityResponse_MissingEvents{EventType: name, Count: s.missing[name]})
	}
	slices.Sort(s.out.SnapshotDigests)
	return &s.out
}
