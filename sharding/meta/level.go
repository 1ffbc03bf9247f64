package meta

import (
	"errors"
	"fmt"
	"slices"

	"github.com/hostd/hostd/sharding"
)

// ErrClusterVersion: a node does not speak the level of the cluster, or the level that
// it is to be raised to; or the command is not one of the cluster's level. The
// message names the node.
var ErrClusterVersion = errors.New("metadata: not at this level")

// Speaker says what a member speaks, as that start of it answered.
type Speaker struct {
	Node        sharding.NodeID       `json:"node"`
	Incarnation uint64                `json:"incarnation"`
	Speaks      sharding.VersionRange `json:"speaks"`
}

// clusterVersionRaise is the level, in commands with those who speak it.
type clusterVersionRaise struct {
	Level    sharding.ClusterVersion `json:"level"`
	Speakers []Speaker               `json:"speakers,omitempty"`
}

// RaiseClusterVersion makes the command that raises the cluster's level for good. by has
// what each member speaks: it is ErrClusterVersion where one is missing, has been
// started anew since it answered, or does not speak the level. The level that
// there is already is accepted, a lower one is ErrClusterVersion.
func RaiseClusterVersion(level sharding.ClusterVersion, by ...Speaker) []byte {
	return encode(command{Op: opRaiseLevel, Raise: &clusterVersionRaise{Level: level, Speakers: by}})
}

// ClusterVersion is what the cluster writes; sharding.Level1 until it was raised.
func (v *View) ClusterVersion() sharding.ClusterVersion { return max(v.level, sharding.Version1) }

// ClusterVersion is that of the View.
func (s *State) ClusterVersion() sharding.ClusterVersion { return s.View().ClusterVersion() }

// Join makes the command that admits m, as Join does, for the level of the
// view: without what the metadata cannot hold there.
func (v *View) Join(m Member) []byte {
	if v.ClusterVersion() < sharding.VersionMemberSpeaks {
		m.Speaks = sharding.VersionRange{}
	}
	if v.ClusterVersion() < sharding.VersionPeerAddress {
		m.PeerAddress = ""
	}
	return Join(m)
}

// speaks refuses a member whose record does not belong to the level, or that
// does not speak it.
func (v *View) speaks(m Member) error {
	if err := m.Speaks.Validate(); err != nil {
		return fmt.Errorf("%w: node %s: %w", ErrInvalid, m.Node, err)
	}
	if m.Speaks != (sharding.VersionRange{}) && v.ClusterVersion() < sharding.VersionMemberSpeaks {
		return fmt.Errorf("%w: what node %s speaks is not kept at level %d", ErrClusterVersion, m.Node, v.ClusterVersion())
	}
	if m.PeerAddress != "" && v.ClusterVersion() < sharding.VersionPeerAddress {
		return fmt.Errorf("%w: where node %s serves other nodes is not kept at level %d", ErrClusterVersion, m.Node, v.ClusterVersion())
	}
	if !m.Speaks.Contains(v.ClusterVersion()) {
		return fmt.Errorf("%w: the cluster is at level %d, node %s speaks %v", ErrClusterVersion, v.ClusterVersion(), m.Node, m.Speaks)
	}
	return nil
}

func (t *transition) raiseClusterVersion(r clusterVersionRaise) error {
	from := t.view.ClusterVersion()
	if r.Level == from {
		return nil
	}
	if r.Level < from {
		return fmt.Errorf("%w: the cluster is at level %d, which never falls to %d", ErrClusterVersion, from, r.Level)
	}
	if len(r.Speakers) > MaxMembers {
		return fmt.Errorf("%w: %d members speak, at most %d are allowed", ErrInvalid, len(r.Speakers), MaxMembers)
	}
	members := t.view.Members()
	for i := range members {
		m := &members[i]
		at := slices.IndexFunc(r.Speakers, func(s Speaker) bool { return s.Node == m.Node })
		switch {
		case at < 0:
			return fmt.Errorf("%w: node %s has not said that it speaks level %d", ErrClusterVersion, m.Node, r.Level)
		case r.Speakers[at].Incarnation != m.Incarnation:
			return fmt.Errorf("%w: start %d of node %s is the one that the cluster knows, start %d said what it speaks", ErrClusterVersion, m.Incarnation, m.Node, r.Speakers[at].Incarnation)
		case r.Speakers[at].Speaks.Validate() != nil || !r.Speakers[at].Speaks.Contains(r.Level):
			return fmt.Errorf("%w: node %s speaks %v, not level %d", ErrClusterVersion, m.Node, r.Speakers[at].Speaks, r.Level)
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

// setClusterVersion is where a replica stops that does not speak the level.
func (t *transition) setClusterVersion(level sharding.ClusterVersion) error {
	if level > sharding.MaxVersion {
		return aboveLevel(level)
	}
	t.view.level = level
	t.store(keyClusterVersion, clusterVersionRaise{Level: level})
	return nil
}

func aboveLevel(level sharding.ClusterVersion) error {
	return fmt.Errorf("%w: the cluster is at level %d, this release speaks %v", ErrUnsupported, level, sharding.SupportedVersions)
}

// restoreClusterVersion takes the stored level, which may be one that this release does
// not speak.
func (v *View) restoreClusterVersion(value []byte) error {
	var set clusterVersionRaise
	if err := unwrap(value, &set); err != nil {
		return err
	}
	if set.Level > sharding.MaxVersion {
		return aboveLevel(set.Level)
	}
	if set.Level <= sharding.Version1 || len(set.Speakers) > 0 {
		return errors.New("no stored level")
	}
	v.level = set.Level
	return nil
}
