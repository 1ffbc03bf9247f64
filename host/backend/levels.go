package backend

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hostd/hostd/host/peer"
	"github.com/hostd/hostd/host/rpc"
	"github.com/hostd/hostd/host/telemetry"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/meta"
)

// askLevelTime bounds how long one member may take to say what it speaks.
const askLevelTime = 3 * time.Second

// levels raises the level of the cluster:
//
//	ask every member ─▶ every member makes its directory one of the level ─▶ raise_level
//
// A member may be stopped, or put back to an earlier release, between any two of
// them. Once its directory is of the level no release opens it that does not
// speak it, so that none misreads what is written after the raise; and the raise
// names the start of each member that answered, so that another start of it, or
// a node that has joined meanwhile, makes it void.
type levels struct{ *Parts }

// RaiseLevel implements rpc.Levels.
func (s levels) RaiseLevel(ctx context.Context, level sharding.Level, dryRun bool) (rpc.LevelReport, error) {
	if err := s.Metadata.CatchUp(ctx); err != nil {
		return rpc.LevelReport{}, err
	}
	report := rpc.LevelReport{Level: s.Metadata.Level(), Wanted: cmp.Or(level, sharding.MaxLevel)}
	report.Nodes, _ = s.ask(ctx, report.Wanted, 0)
	if dryRun || report.Wanted == report.Level {
		return report, nil
	}
	if report.Wanted < report.Level {
		return report, &rpc.RefusedError{Reason: fmt.Sprintf("the cluster is at level %d, which never falls", report.Level)}
	}
	if err := obstacle(report.Nodes); err != nil {
		return report, err
	}
	nodes, speakers := s.ask(ctx, report.Wanted, report.Wanted)
	report.Nodes = nodes
	if err := obstacle(nodes); err != nil {
		return report, err
	}
	_, err := s.Metadata.Do(ctx, meta.RaiseLevel(report.Wanted, speakers...))
	if errors.Is(err, meta.ErrLevel) {
		return report, &rpc.RefusedError{Reason: err.Error()}
	}
	if err == nil {
		s.Logger.Info("the level of the cluster was raised", "from", uint32(report.Level), "to", uint32(report.Wanted))
		report.Level = report.Wanted
	}
	return report, err
}

func obstacle(nodes []rpc.NodeLevels) error {
	for _, m := range nodes {
		if m.Obstacle != "" {
			return &rpc.RefusedError{Reason: m.Obstacle}
		}
	}
	return nil
}

// ask asks all members what they speak, and has them make their directories ones
// of the level prepare where that is not 0.
func (s levels) ask(ctx context.Context, wanted, prepare sharding.Level) ([]rpc.NodeLevels, []meta.Speaker) {
	ctx, cancel := context.WithTimeout(ctx, askLevelTime)
	defer cancel()
	members := s.Metadata.View().Members()
	nodes, speakers := make([]rpc.NodeLevels, len(members)), make([]meta.Speaker, len(members))
	var asked sync.WaitGroup
	for i, m := range members {
		asked.Go(func() { nodes[i], speakers[i] = s.askOne(ctx, m, wanted, prepare) })
	}
	asked.Wait()
	return nodes, speakers
}

func (s levels) askOne(ctx context.Context, m meta.Member, wanted, prepare sharding.Level) (rpc.NodeLevels, meta.Speaker) {
	out := rpc.NodeLevels{Node: m.Node, Version: m.Version}
	speaker := meta.Speaker{Node: m.Node}
	if m.Node == s.Self {
		out.Version, out.Speaks = telemetry.Version(), sharding.Speaks
		speaker.Incarnation = s.Describe().Incarnation
		if err := s.SaveLevel(prepare); err != nil {
			out.Obstacle = fmt.Sprintf("node %s cannot write its data directory: %v", m.Node, err)
		}
	} else {
		said, err := s.Peers.PrepareLevel(ctx, m.Node, prepare)
		switch {
		case errors.Is(err, peer.ErrFormat):
			out.Speaks = sharding.Levels{}.Known()
		case err != nil:
			out.Obstacle = fmt.Sprintf("node %s does not say what it speaks: start it, or take it out of the cluster: %v", m.Node, err)
		default:
			out.Version = said.GetVersion()
			out.Speaks = sharding.Levels{Min: sharding.Level(said.GetMinLevel()), Max: sharding.Level(said.GetMaxLevel())}
			speaker.Incarnation = said.GetIncarnation()
		}
	}
	speaker.Speaks = out.Speaks
	if out.Obstacle == "" && !out.Speaks.Has(wanted) {
		out.Obstacle = fmt.Sprintf("node %s runs release %s, which speaks %v and not level %d", m.Node, cmp.Or(out.Version, "?"), out.Speaks, wanted)
	}
	return out, speaker
}
