package host

import (
	"github.com/hostd/hostd/host/telemetry"
	"github.com/hostd/hostd/sharding/meta"
)

// learnLogLevels applies the log levels in the cluster's settings to the node's
// logger. A setting for this node takes precedence over the one for all nodes.
func (n *Node) learnLogLevels(view *meta.View) {
	levels := telemetry.LevelsOf(n.logger)
	if levels == nil {
		return
	}
	set, ok := view.Setting(telemetry.LevelSetting + "." + string(n.id.Node))
	if !ok {
		set, _ = view.Setting(telemetry.LevelSetting)
	}
	long, _ := view.Setting(telemetry.LevelForSetting)
	switch changed, err := levels.Set(string(set.Value), string(long.Value), set.Revision); {
	case err != nil:
		n.logger.Warn("ignored a log setting that this release does not know", "error", err)
	case changed != "":
		n.logger.Warn("log levels changed", "levels", changed)
	}
}
