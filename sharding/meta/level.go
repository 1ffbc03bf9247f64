package meta

import (
	"errors"
	"fmt"
	"slices"

	"github.com/hostd/hostd/sharding"
)

// ErrClusterVersion: a node does not support the current or the requested
// cluster version, or the command is not available at the current cluster
// version. The message names the node.
var ErrClusterVersion = errors.New("metadata: not available at this cluster version")

// Speaker is the range of cluster versions that a member supports, as reported
// by the given incarnation of the member.
type Speaker struct {
	Node        sharding.NodeID       `json:"node"`
	Incarnation uint64                `json:"incarnation"`
	Speaks      sharding.VersionRange `json:"speaks"`
}

// clusterVersionRaise is the stored form of the cluster version, and the
// argument of the command that raises it. Only the command has Speakers, the
// ranges of versions that the members support.
type clusterVersionRaise struct {
	Level    sharding.ClusterVersion `json:"level"`
	Speakers []Speaker               `json:"speakers,omitempty"`
}

// RaiseClusterVersion returns the command that raises the cluster version
// permanently. by has the supported range of each member. The command fails
// with ErrClusterVersion if a member is missing, has restarted since it
// reported its range, or does not support the version, and if the version is
// lower than the current version. Raising to the current version succeeds.
func RaiseClusterVersion(level sharding.ClusterVersion, by ...Speaker) []byte {
	return encode(command{Op: opRaiseLevel, Raise: &clusterVersionRaise{Level: level, Speakers: by}})
}

// ClusterVersion returns the cluster version, sharding.Version1 until it was
// raised.
func (v *View) ClusterVersion() sharding.ClusterVersion { return max(v.level, sharding.Version1) }

// ClusterVersion returns the cluster version of the current View.
func (s *State) ClusterVersion() sharding.ClusterVersion { return s.View().ClusterVersion() }

// Join is the function Join for the current cluster version: it leaves out
// fields of m that the metadata cannot store yet.
func (v *View) Join(m Member) []byte {
	if v.ClusterVersion() < sharding.VersionMemberSpeaks {
		m.Speaks = sharding.VersionRange{}
	}
	if v.ClusterVersion() < sharding.VersionPeerAddress {
		m.PeerAddress = ""
	}
	return Join(m)
}

// checkSupports rejects a member that does not support the cluster version, or
// whose record has fields that are not available yet.
func (v *View) checkSupports(m Member) error {
	if err := m.Speaks.Validate(); err != nil {
		return fmt.Errorf("%w: node %s: %w", ErrInvalid, m.Node, err)
	}
	if m.Speaks != (sharding.VersionRange{}) && v.ClusterVersion() < sharding.VersionMemberSpeaks {
		return fmt.Errorf("%w: cluster version %[3]d cannot store which versions node %[2]s supports", ErrClusterVersion, m.Node, v.ClusterVersion())
	}
	if m.PeerAddress != "" && v.ClusterVersion() < sharding.VersionPeerAddress {
		return fmt.Errorf("%w: cluster version %[3]d cannot store the peer address of node %[2]s", ErrClusterVersion, m.Node, v.ClusterVersion())
	}
	if !m.Speaks.Contains(v.ClusterVersion()) {
		return fmt.Errorf("%w: the cluster is at version %d, node %s supports %v", ErrClusterVersion, v.ClusterVersion(), m.Node, m.Speaks)
	}
	return nil
}

func (t *transition) raiseClusterVersion(r clusterVersionRaise) error {
	from := t.view.ClusterVersion()
	if r.Level == from {
		return nil
	}
	if r.Level < from {
		return fmt.Errorf("%w: the cluster is at version %d and cannot go back to %d", ErrClusterVersion, from, r.Level)
	}
	if len(r.Speakers) > MaxMembers {
		return fmt.Errorf("%w: %d members listed, at most %d are allowed", ErrInvalid, len(r.Speakers), MaxMembers)
	}
	members := t.view.Members()
	for i := range members {
		m := &members[i]
		at := slices.IndexFunc(r.Speakers, func(s Speaker) bool { return s.Node == m.Node })
		switch {
		case at < 0:
			return fmt.Errorf("%w: node %s has not reported that it supports cluster version %d", ErrClusterVersion, m.Node, r.Level)
		case r.Speakers[at].Incarnation != m.Incarnation:
			return fmt.Errorf("%w: start %d is the current one of node %s, but start %d reported the supported versions", ErrClusterVersion, m.Incarnation, m.Node, r.Speakers[at].Incarnation)
		case r.Speakers[at].Speaks.Validate() != nil || !r.Speakers[at].Speaks.Contains(r.Level):
			return fmt.Errorf("%w: node %s supports %v, not version %d", ErrClusterVersion, m.Node, r.Speakers[at].Speaks, r.Level)
		}
		m.Speaks = r.Speakers[at].Speaks
	}
	if err := t.setClusterVersion(r.Level); err != nil {
		return err
	}
	for _, m := range members {
		if err := t.admit(m); err != nil {
			return err
		}
	}
	return nil
}

// setClusterVersion stores the version. A replica whose release does not
// support it stops here.
func (t *transition) setClusterVersion(level sharding.ClusterVersion) error {
	if level > sharding.MaxVersion {
		return aboveLevel(level)
	}
	t.view.level = level
	t.store(keyClusterVersion, clusterVersionRaise{Level: level})
	return nil
}

func aboveLevel(level sharding.ClusterVersion) error {
	return fmt.Errorf("%w: the cluster is at version %d, this release supports %v", ErrUnsupported, level, sharding.SupportedVersions)
}

// restoreClusterVersion restores the stored version, which this release may not
// support.
func (v *View) restoreClusterVersion(value []byte) error {
	var set clusterVersionRaise
	if err := unwrap(value, &set); err != nil {
		return err
	}
	if set.Level > sharding.MaxVersion {
		return aboveLevel(set.Level)
	}
	if set.Level <= sharding.Version1 || len(set.Speakers) > 0 {
		return errors.New("invalid stored cluster version")
	}
	v.level = set.Level
	return nil
}
