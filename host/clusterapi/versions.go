package clusterapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	peerv1 "github.com/hostd/hostd/api/gen/hostd/peer/v1"
	"github.com/hostd/hostd/host/cluster"
	"github.com/hostd/hostd/host/peer"
	"github.com/hostd/hostd/host/status"
	"github.com/hostd/hostd/host/telemetry"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/meta"
)

// askVersionTime limits the time in which one member must report the versions that
// it supports.
const askVersionTime = 3 * time.Second

// versions raises the cluster version:
//
//	ask every member ─▶ who reaches whom ─▶ every member stamps its directory with the version ─▶ raise_level
//
// A member may be stopped, or downgraded to an earlier release, between any two
// of these steps. After a directory is stamped with the version, a release that
// does not support the version refuses to open it, so no release misreads what
// is written after the raise. The raise command also names the incarnation of
// each member that answered, so it has no effect if a member was restarted or a
// node has joined meanwhile.
//
// Who reaches whom matters for the version from which nodes serve each other on
// a separate listener: if other nodes can reach only a member's client listener,
// the raise would partition the cluster.
type versions struct{ *Parts }

// FinalizeUpgrade implements UpgradeFinalizer.
func (s versions) FinalizeUpgrade(ctx context.Context, version sharding.ClusterVersion, dryRun bool) (UpgradeReport, error) {
	if err := s.Metadata.CatchUp(ctx); err != nil {
		return UpgradeReport{}, err
	}
	report := UpgradeReport{Version: s.Metadata.ClusterVersion(), Target: cmp.Or(version, sharding.MaxVersion)}
	before := s.ask(ctx, report.Target, 0)
	if report.Version < sharding.VersionPeerAddress && report.Target >= sharding.VersionPeerAddress {
		s.findUnreached(ctx, before)
	}
	report.Nodes = nodeVersions(before)
	if dryRun || report.Target == report.Version {
		return report, nil
	}
	if report.Target < report.Version {
		return report, &status.RefusedError{Reason: fmt.Sprintf("the cluster is at version %d, which cannot be lowered", report.Version)}
	}
	if err := obstacle(report.Nodes); err != nil {
		return report, err
	}
	now := s.ask(ctx, report.Target, report.Target)
	changedSince(before, now)
	report.Nodes = nodeVersions(now)
	if err := obstacle(report.Nodes); err != nil {
		return report, err
	}
	speakers := make([]meta.Speaker, len(now))
	for i, a := range now {
		speakers[i] = a.speaker
	}
	_, err := s.Metadata.Do(ctx, meta.RaiseClusterVersion(report.Target, speakers...))
	if errors.Is(err, meta.ErrClusterVersion) {
		return report, &status.RefusedError{Reason: err.Error()}
	}
	if err == nil {
		s.Logger.Info("the cluster version was raised", "from", uint32(report.Version), "to", uint32(report.Target))
		report.Version = report.Target
	}
	return report, err
}

func obstacle(nodes []NodeVersions) error {
	for _, m := range nodes {
		if m.Obstacle != "" {
			return &status.RefusedError{Reason: m.Obstacle}
		}
	}
	return nil
}

// memberAnswer is a member's answer to the question which versions it supports.
type memberAnswer struct {
	NodeVersions
	speaker meta.Speaker
	peersAt string // address of the member's peer listener; empty if it has not reported one
}

func nodeVersions(members []memberAnswer) []NodeVersions {
	out := make([]NodeVersions, len(members))
	for i, a := range members {
		out[i] = a.NodeVersions
	}
	return out
}

// changedSince records an obstacle for each member that was started or moved
// after the members were asked for the first time, because it was not
// checked which nodes reach this member.
func changedSince(before, now []memberAnswer) {
	for i, a := range now {
		if a.Obstacle == "" && !slices.ContainsFunc(before, func(b memberAnswer) bool {
			return b.Node == a.Node && b.speaker.Incarnation == a.speaker.Incarnation && b.peersAt == a.peersAt
		}) {
			now[i].Obstacle = fmt.Sprintf("node %s was started during the check: finalize the upgrade again", a.Node)
		}
	}
}

// ask asks all members which versions they support and, if prepare is not 0,
// makes them stamp their directories with that version.
func (s versions) ask(ctx context.Context, wanted, prepare sharding.ClusterVersion) []memberAnswer {
	ctx, cancel := context.WithTimeout(ctx, askVersionTime)
	defer cancel()
	members := s.Metadata.View().Members()
	out := make([]memberAnswer, len(members))
	var asking sync.WaitGroup
	for i, m := range members {
		asking.Go(func() { out[i] = s.askOne(ctx, m, wanted, prepare) })
	}
	asking.Wait()
	return out
}

func (s versions) askOne(ctx context.Context, m meta.Member, wanted, prepare sharding.ClusterVersion) memberAnswer {
	out := memberAnswer{NodeVersions: NodeVersions{Node: m.Node, Release: m.Version}, speaker: meta.Speaker{Node: m.Node}}
	if m.Node == s.Self {
		self := s.Node.Describe()
		out.Release, out.Supported = telemetry.Version(), sharding.SupportedVersions
		out.speaker.Incarnation, out.peersAt = self.Incarnation, self.PeerAddress
		if err := s.Identity.SaveLevel(prepare); err != nil {
			out.Obstacle = fmt.Sprintf("node %s cannot write its data directory: %v", m.Node, err)
		}
	} else {
		said, err := s.Peers.PrepareClusterVersion(ctx, m.Node, prepare)
		switch {
		case errors.Is(err, peer.ErrFormat):
			out.Supported = sharding.VersionRange{}.WithDefault()
		case err != nil:
			out.Obstacle = fmt.Sprintf("node %s does not report the versions that it supports: start it, or remove it from the cluster: %v", m.Node, err)
		default:
			out.Release = said.GetVersion()
			out.Supported = sharding.VersionRange{Min: sharding.ClusterVersion(said.GetMinLevel()), Max: sharding.ClusterVersion(said.GetMaxLevel())}
			out.speaker.Incarnation, out.peersAt = said.GetIncarnation(), said.GetPeerAddress()
		}
	}
	out.speaker.Speaks = out.Supported
	if out.Obstacle == "" && !out.Supported.Contains(wanted) {
		out.Obstacle = fmt.Sprintf("node %s runs release %s, which supports %v but not version %d", m.Node, cmp.Or(out.Release, "?"), out.Supported, wanted)
	}
	return out
}

// maxNamed limits the nodes that an obstacle names in addition to its own.
const maxNamed = 8

// findUnreached makes each member that supports the version check whether it
// reaches the peer listeners of the other members. For each member that some
// nodes do not reach, it records these nodes and the reasons.
func (s versions) findUnreached(ctx context.Context, members []memberAnswer) {
	ctx, cancel := context.WithTimeout(ctx, cluster.ReachTime+askVersionTime)
	defer cancel()
	var starts []*peerv1.StartAddress
	for i, a := range members {
		switch {
		case a.Obstacle != "":
		case a.peersAt == "":
			members[i].Obstacle = fmt.Sprintf("node %s runs release %s, which does not report its peer address: upgrade it", a.Node, cmp.Or(a.Release, "?"))
		default:
			starts = append(starts, &peerv1.StartAddress{NodeId: string(a.Node), Incarnation: a.speaker.Incarnation, Address: a.peersAt})
		}
	}
	if len(starts) < 2 {
		return
	}
	unreached, faults := make([][]*peerv1.Unreached, len(members)), make([]error, len(members))
	var asking sync.WaitGroup
	for i, a := range members {
		switch {
		case a.Obstacle != "" || a.peersAt == "":
		case a.Node == s.Self:
			asking.Go(func() { unreached[i], faults[i] = s.Control.Reach(ctx, starts) })
		default:
			asking.Go(func() { unreached[i], faults[i] = s.Peers.Reach(ctx, a.Node, starts) })
		}
	}
	asking.Wait()
	for i, a := range members {
		var by []string
		for k, missing := range unreached {
			for _, u := range missing {
				if u.GetNodeId() == string(a.Node) {
					by = append(by, fmt.Sprintf("%s (%.200s)", members[k].Node, u.GetReason()))
				}
			}
		}
		switch {
		case faults[i] != nil:
			members[i].Obstacle = fmt.Sprintf("node %s does not report whether it reaches the other nodes' peer addresses: %v", a.Node, faults[i])
		case len(by) > maxNamed:
			by = append(by[:maxNamed], fmt.Sprintf("and %d more", len(by)-maxNamed))
			fallthrough
		case len(by) > 0:
			members[i].Obstacle = fmt.Sprintf("node %s is unreachable at its peer address %s, which is required from cluster version %d on, for %s; see peer-listen and peer-advertise",
				a.Node, a.peersAt, sharding.VersionPeerAddress, strings.Join(by, ", "))
		}
	}
}
