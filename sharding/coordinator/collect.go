package coordinator

import (
	"time"

	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/meta"
)

// collectEvery is how often it is looked for modules that nothing needs.
const collectEvery = 10 * time.Second

// collect has modules removed that nothing has needed for long. Where it finds
// some, the next step looks again: a command changes few.
func (s *stepView) collect() {
	if s.view.ClusterVersion() < sharding.VersionModuleRetention || s.now.Sub(s.collected) < collectEvery {
		return
	}
	if at := s.now.UnixNano(); s.view.StaleModules(at) {
		s.plan.Commands = append(s.plan.Commands, meta.CollectModules(at))
		return
	}
	s.collected = s.now
}
