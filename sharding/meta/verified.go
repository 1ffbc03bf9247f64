package meta

import (
	"fmt"
	"slices"

	"github.com/hostd/hostd/sharding"
)

// MaxSnapshotModules is of how many modules before it a module loads the
// snapshots: those that came last.
const MaxSnapshotModules = 8

// MaxVerified is how many modules the metadata has what came of verifying them
// with a type: those that were verified last.
const MaxVerified = 8

// Verified is what came of replaying the entities of a type with a module and
// with the one that served it, under the binding's revision then.
type Verified struct {
	Digest   Digest `json:"digest"`
	Revision uint64 `json:"revision"`
	At       int64  `json:"at"`           // unix nanoseconds
	By       string `json:"by,omitempty"` // who had it done
	// All: every entity was replayed, rather than a sample.
	All      bool   `json:"all,omitempty"`
	Entities uint64 `json:"entities"`
	Events   uint64 `json:"events"`
	// Of the entities, those of which the module makes another state, those on
	// which it fails, and those of which there was nothing to compare with.
	Differences uint64 `json:"differences,omitempty"`
	Faults      uint64 `json:"faults,omitempty"`
	Uncompared  uint64 `json:"uncompared,omitempty"`
	// Snapshots: it makes the same states of the snapshots of the module that
	// served, all of them, so that it may load them as its own.
	Snapshots bool `json:"snapshots,omitempty"`
	// Cut are entities that were not replayed: their first events are gone.
	Cut uint64 `json:"cut,omitempty"`
	// Truncated are the modules whose snapshots stand for all entities whose first
	// events are gone and which the module cannot build from a snapshot of its
	// own. It makes the same states of them, or other states were accepted. From
	// sharding.VersionSnapshotProofs on, at most MaxTruncatedModules.
	Truncated []Digest `json:"truncated,omitempty"`
	// Proved: nothing was written between the comparison and the next binding, so
	// that Snapshots and Truncated hold for all snapshots that there are. A
	// verification while commands run does not prove that. From
	// sharding.VersionSnapshotProofs on.
	Proved bool `json:"proved,omitempty"`
}

// verifiedList is what is stored of a type, oldest first.
type verifiedList struct {
	List []Verified `json:"list"`
}

// PutVerified makes the command that keeps what came of a verification, from
// sharding.VersionVerificationResults on, in the place of the one before of the same module.
// It is ErrConflict where the type is served under another revision by now.
func PutVerified(entityType string, v Verified) []byte {
	return encode(command{Op: opPutVerified, EntityType: entityType, bindingCommand: bindingCommand{Verified: &v}})
}

// Verified returns what came last of verifying a module with a type.
func (v *View) Verified(entityType string, digest Digest) (Verified, bool) {
	for _, one := range v.verified[entityType].List {
		if one.Digest == digest {
			return one, true
		}
	}
	return Verified{}, false
}

func putVerified(t *transition, entityType string, v Verified) error {
	if level := t.view.ClusterVersion(); level < sharding.VersionVerificationResults {
		return fmt.Errorf("%w: what came of a verification is kept from level %d on, the cluster is at level %d: hostd cluster raise-level", ErrClusterVersion, sharding.VersionVerificationResults, level)
	}
	if err := checkText("by", v.By, MaxForcedByBytes); err != nil {
		return err
	}
	if level := t.view.ClusterVersion(); (len(v.Truncated) > 0 || v.Proved) && level < sharding.VersionSnapshotProofs {
		return fmt.Errorf("%w: proofs of snapshots are kept from level %d on, the cluster is at level %d: hostd cluster raise-level", ErrClusterVersion, sharding.VersionSnapshotProofs, level)
	}
	if len(v.Truncated) > MaxTruncatedModules {
		return fmt.Errorf("%w: snapshots of %d modules, at most %d are allowed", ErrInvalid, len(v.Truncated), MaxTruncatedModules)
	}
	b, bound := t.view.bindings[entityType]
	m, known := t.view.modules[v.Digest]
	switch {
	case !bound:
		return fmt.Errorf("%w: %.64q", ErrUnknownType, entityType)
	case !known:
		return fmt.Errorf("%w: %s", ErrUnknownModule, v.Digest)
	case !slices.Contains(m.EntityTypes, entityType):
		return fmt.Errorf("%w: the module does not serve %.64q", ErrUnknownType, entityType)
	case b.Revision != v.Revision:
		return fmt.Errorf("%w: %s is served under revision %d, not %d", ErrConflict, entityType, b.Revision, v.Revision)
	}
	list := slices.DeleteFunc(slices.Clone(t.view.verified[entityType].List), func(one Verified) bool { return one.Digest == v.Digest })
	if over := len(list) + 1 - MaxVerified; over > 0 {
		list = list[over:]
	}
	kept := verifiedList{append(list, v)}
	put(&t.view.verified, entityType, kept)
	t.store(prefixVerified+entityType, kept)
	return nil
}

// snapshotsFor are the modules whose snapshots a module loads as its own that
// is to serve a type: that which serves, where a verification under its
// revision has found so, and those whose snapshots that one loads.
func (v *View) snapshotsFor(b Binding, digest Digest) []Digest {
	if b.Digest == digest {
		return b.Snapshots // other limits
	}
	one, ok := v.Verified(b.EntityType, digest)
	if !ok || !one.Snapshots || one.Revision != b.Revision || !one.Proved && v.ClusterVersion() >= sharding.VersionSnapshotProofs {
		return nil
	}
	out := slices.DeleteFunc(append(slices.Clone(b.Snapshots), b.Digest), func(d Digest) bool { return d == digest })
	return out[max(0, len(out)-MaxSnapshotModules):]
}
