package meta

import (
	"fmt"
	"slices"

	"github.com/hostd/hostd/sharding"
)

// MaxSnapshotModules limits the preceding modules whose snapshots a module
// loads. The latest ones are kept.
const MaxSnapshotModules = 8

// MaxVerificationResults limits the stored verification results per type. The
// latest ones are kept.
const MaxVerificationResults = 8

// VerificationResult is the result of replaying a type's entities with a module
// and comparing with the module that served the type, under the binding's
// revision at the time.
type VerificationResult struct {
	Digest   Digest `json:"digest"`
	Revision uint64 `json:"revision"`
	At       int64  `json:"at"`           // Unix nanoseconds
	By       string `json:"by,omitempty"` // principal that started the verification
	// All means that every entity was replayed, not only a sample.
	All      bool   `json:"all,omitempty"`
	Entities uint64 `json:"entities"`
	Events   uint64 `json:"events"`
	// Number of entities for which the module produces a different state, for
	// which it fails, and for which there was nothing to compare with.
	Differences uint64 `json:"differences,omitempty"`
	Faults      uint64 `json:"faults,omitempty"`
	Uncompared  uint64 `json:"uncompared,omitempty"`
	// Snapshots means that the module produces the same states from all snapshots
	// of the serving module, so it may load them as if they were its own.
	Snapshots bool `json:"snapshots,omitempty"`
	// Cut is the number of entities that were not replayed because their first
	// events are gone.
	Cut uint64 `json:"cut,omitempty"`
	// Truncated are the modules whose snapshots replace truncated histories: they
	// cover all entities whose first events are gone and for which the module has
	// no snapshot of its own. The module produces the same states from these
	// snapshots, or differing states were accepted. From
	// sharding.VersionSnapshotProofs on, at most MaxTruncatedModules.
	Truncated []Digest `json:"truncated,omitempty"`
	// Proved means that nothing was written between the comparison and the next
	// binding, so Snapshots and Truncated hold for all existing snapshots. A
	// verification while commands run does not prove that. From
	// sharding.VersionSnapshotProofs on.
	Proved bool `json:"proved,omitempty"`
}

// verificationResults is the stored form, oldest first.
type verificationResults struct {
	List []VerificationResult `json:"list"`
}

// PutVerificationResult returns the command that stores a verification result,
// replacing the previous result of the same module. It fails with ErrConflict
// if the type is served under a different revision by now. It requires
// sharding.VersionVerificationResults.
func PutVerificationResult(entityType string, v VerificationResult) []byte {
	return encode(command{Op: opPutVerified, EntityType: entityType, activationCommand: activationCommand{Verified: &v}})
}

// VerificationResult returns the latest result of verifying a module with a
// type.
func (v *View) VerificationResult(entityType string, digest Digest) (VerificationResult, bool) {
	for _, one := range v.verified[entityType].List {
		if one.Digest == digest {
			return one, true
		}
	}
	return VerificationResult{}, false
}

func putVerificationResult(t *transition, entityType string, v VerificationResult) error {
	if level := t.view.ClusterVersion(); level < sharding.VersionVerificationResults {
		return fmt.Errorf("%w: %s", ErrClusterVersion, sharding.VersionVerificationResults.NeededBy("verification results need", level))
	}
	if err := checkText("by", v.By, MaxForcedByBytes); err != nil {
		return err
	}
	if level := t.view.ClusterVersion(); (len(v.Truncated) > 0 || v.Proved) && level < sharding.VersionSnapshotProofs {
		return fmt.Errorf("%w: %s", ErrClusterVersion, sharding.VersionSnapshotProofs.NeededBy("snapshot verification results need", level))
	}
	if len(v.Truncated) > MaxTruncatedModules {
		return fmt.Errorf("%w: %d snapshot modules, at most %d are allowed", ErrInvalid, len(v.Truncated), MaxTruncatedModules)
	}
	b, bound := t.view.activations[entityType]
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
	list := slices.DeleteFunc(slices.Clone(t.view.verified[entityType].List), func(one VerificationResult) bool { return one.Digest == v.Digest })
	if over := len(list) + 1 - MaxVerificationResults; over > 0 {
		list = list[over:]
	}
	kept := verificationResults{append(list, v)}
	put(&t.view.verified, entityType, kept)
	t.store(prefixVerified+entityType, kept)
	return nil
}

// snapshotsFor returns the modules whose snapshots a module will load as if
// they were its own once it serves the type. If a verification under the
// current revision allows it, these are the serving module and the modules
// whose snapshots the serving module loads.
func (v *View) snapshotsFor(b Activation, digest Digest) []Digest {
	if b.Digest == digest {
		return b.Snapshots // only the limits change
	}
	one, ok := v.VerificationResult(b.EntityType, digest)
	if !ok || !one.Snapshots || one.Revision != b.Revision || !one.Proved && v.ClusterVersion() >= sharding.VersionSnapshotProofs {
		return nil
	}
	out := slices.DeleteFunc(append(slices.Clone(b.Snapshots), b.Digest), func(d Digest) bool { return d == digest })
	return out[max(0, len(out)-MaxSnapshotModules):]
}
