package coordinator

import (
	"time"

	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/meta"
)

// collectEvery is how often to look for unused modules.
const collectEvery = 10 * time.Second

// collect removes modules that have been unused for long enough. One command
// changes only a few modules, so if a step finds unused modules, the next step
// looks for more.
func (s *stepView) collect() {
	if s.view.ClusterVersion() < sharding.VersionModuleRetention || s.now.Sub(s.lastCollect) < collectEvery {
		return
	}
	if at := s.now.UnixNano(); s.view.HasStaleModules(at) {
		s.plan.Commands = append(s.plan.Commands, meta.CollectModules(at))
		return
	}
	s.lastCollect = s.now
}
