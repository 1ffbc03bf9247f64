package sharding

import "fmt"

// ClusterVersion gates every format change: records, sections, log entries,
// metadata commands, stored values and files that another node, or a later
// release on the same node, may read. The cluster version is stored in the
// metadata (if absent, it is Version1). An operator raises it once every member
// supports the new version, and it never decreases. [sharding/meta/FORMAT.md]
// has the full rule; in short:
//
// Before writing something new, check that the cluster version allows it. When
// reading, accept everything from MinVersion to MaxVersion, whatever the
// current cluster version is: replicas of different shards learn of a new
// version at different times, so applying an entry must not depend on the
// current version. Data of an unknown version stops the reader with an error
// that names it.
type ClusterVersion uint32

// NeededBy returns the message for a feature that needs version v while the
// cluster is at version is. what has the subject and the verb of the message,
// such as "roles need".
func (v ClusterVersion) NeededBy(what string, is ClusterVersion) string {
	return fmt.Sprintf("%s cluster version %d, but the cluster is at %d: run 'hostd cluster upgrade finalize'", what, v, is)
}

// Cluster versions.
const (
	// Version1 is the version of the first release.
	Version1 ClusterVersion = 1
	// Version2 enables the features gated by the constants equal to it below.
	Version2 ClusterVersion = 2
	// Version3 enables the features gated by the constants equal to it below.
	Version3 ClusterVersion = 3

	// MinVersion and MaxVersion are the oldest and newest versions this release
	// supports.
	MinVersion = Version1
	MaxVersion = Version3
)

// Feature gates: the first cluster version with which each feature is written.
// A new format gets a line here, and its writer checks "version >=
// sharding.VersionX".
const (
	// VersionMemberSpeaks: members in the metadata have the JSON member
	// "speaks".
	VersionMemberSpeaks = Version2
	// VersionRowChecksums: applied indexes in the store and in shard snapshots
	// carry checksums of the shard's rows.
	VersionRowChecksums = Version2
	// VersionHops: message deliveries and the messages they cause carry a hop
	// count.
	VersionHops = Version2
	// VersionConsistencyChecks: shard logs contain entries with replica
	// checksums.
	VersionConsistencyChecks = Version2
	// VersionDownedStarts: after a node's removal, the metadata keeps a record of
	// the incarnations that an operator declared down.
	VersionDownedStarts = Version2
	// VersionBudgets: entity type limits have fuelPerSecond and bytesPerSecond.
	VersionBudgets = Version2
	// VersionSchemas: the cluster accepts modules whose manifests contain
	// schemas, or are larger than the 64 KiB that earlier releases read.
	VersionSchemas = Version2
	// VersionPolicy: a cluster's policy is set when the cluster is created, and
	// includes deadAfter.
	VersionPolicy = Version2
	// VersionPeerAddress: members in the metadata have the JSON member
	// "peerAddress". Nodes use it to find each other, and client listeners no
	// longer serve other nodes.
	VersionPeerAddress = Version2
	// VersionRecoverShard: the metadata accepts commands that continue a shard
	// with a single replica.
	VersionRecoverShard = Version2
	// VersionRollbackOf: a rollback names the revision it reverts, and the
	// binding records it.
	VersionRollbackOf = Version2
	// VersionRoles: the metadata stores roles and role bindings.
	VersionRoles = Version2
	// VersionSignatures: the metadata stores module signatures.
	VersionSignatures = Version2
	// VersionRemoveModule: modules can be removed from the metadata, and the
	// number of modules is limited per cluster and per uploader.
	VersionRemoveModule = Version2
	// VersionModuleRetention: the metadata records since when a module has been
	// unused, modules are removed after a retention period, and the module
	// limits are configurable.
	VersionModuleRetention = Version2
	// VersionTokens: the metadata stores token hashes.
	VersionTokens = Version2
	// VersionInternal: the cluster accepts modules whose manifests mark
	// commands as internal. Earlier releases ignore the mark.
	VersionInternal = Version2
	// VersionSends: the cluster accepts modules whose manifests declare which
	// types they send to or accept messages from. Earlier releases ignore these
	// declarations.
	VersionSends = Version2
	// VersionBindOver: a binding names the revision that it replaces.
	VersionBindOver = Version2
	// VersionPrincipal: nodes include the caller's principal in forwarded
	// requests.
	VersionPrincipal = Version2
	// VersionRecordPrincipal: records store the principal that issued the
	// command, for types whose manifests request the principal. Earlier
	// releases ignore that part of a manifest.
	VersionRecordPrincipal = Version2
	// VersionOwners: entity type bindings have owners.
	VersionOwners = Version2
	// VersionChanges: entity type bindings keep their latest changes and the
	// principals that made them.
	VersionChanges = Version2
	// VersionRollbackWith: a rollback can revert several types at once, and
	// records the principal that forced it.
	VersionRollbackWith = Version2
	// VersionVerificationResults: the metadata stores the results of module
	// verifications.
	VersionVerificationResults = Version2
	// VersionStateVersions: durable-state types number the format of their
	// state, and records carry that number. Earlier releases ignore the number.
	VersionStateVersions = Version2
	// VersionUpcasts: nodes can request upcast events from each other.
	VersionUpcasts = Version2
	// VersionRecordTrace: records of commands with sampled traces carry the
	// span in which they were made, as do the messages and timers that they
	// cause, and nodes propagate the span in their requests to each other.
	VersionRecordTrace = Version2
	// VersionRollouts: a module can serve a fraction of a type's entities.
	VersionRollouts = Version2
	// VersionWritePauses: writes by the entities of a type can be suspended while a
	// module is verified against them.
	VersionWritePauses = Version2
	// VersionPrincipalVariable: id prefixes in roles may contain ${principal},
	// and a role with ${principal.name} can be bound only to subjects of one
	// kind.
	VersionPrincipalVariable = Version3
	// VersionPacedWork: shard logs contain entries that defer part of their
	// work to later entries, and the rows and timers of an entity record which
	// incarnation of the entity they belong to.
	VersionPacedWork = Version3
	// VersionOutputLimits: nodes report to each other that a command failed
	// because its output exceeds a limit or has an invalid value. Below this
	// version, they report a guest fault instead.
	VersionOutputLimits = Version3
	// VersionSnapshotProofs: bindings and rollouts name the modules whose
	// snapshots may replace truncated histories, based on verification, and
	// verification results name them too. The writes of a type are suspended
	// during a rollout.
	VersionSnapshotProofs = Version3
	// VersionSnapshotStates: the cluster accepts modules whose event-sourced types
	// list the snapshot state versions that they can read, and keeps a module
	// while a different module reads its snapshots.
	VersionSnapshotStates = Version3
	// VersionMessageReplies: records of messages that expect a reply, and the
	// replies, are marked. A type accepts messages from types of other owners
	// only if its manifest names them.
	VersionMessageReplies = Version3
	// VersionMessageTokens: messages that expect a reply carry a token of their
	// sender, which is returned with the outcome.
	VersionMessageTokens = Version3
	// VersionWorkflows: the cluster accepts modules with workflow types, which
	// earlier releases do not know. Records and entity rows of runs have their
	// status, shards have an index of open runs, and shard logs contain
	// checkpoints of runs, which are snapshots that belong to no module.
	VersionWorkflows = Version3
	// VersionFingerprints: rows in a shard's order index carry fingerprints of
	// their records. Subscription cursors use them to detect that they belong
	// to a different history.
	VersionFingerprints = Version3
	// VersionFormerMembers: the metadata records which nodes were members and have
	// left.
	VersionFormerMembers = Version3
	// VersionLeaving: members in the metadata have the JSON member "leaving",
	// so that a leave request survives the node going down, restarting or
	// losing its disk.
	VersionLeaving = Version3
	// VersionUploaderBytes: the total module bytes per uploader are limited.
	VersionUploaderBytes = Version3
	// VersionVerifyingRollouts: activating a module on a type with truncated
	// histories creates a rollout that is verified first and carries limits.
	VersionVerifyingRollouts = Version3
	// VersionAlwaysOn: manifests name the member alwaysOn, which earlier
	// releases know only as rememberEntities.
	VersionAlwaysOn = Version3
)

// FirstVersion returns Version1. It serves as the default for components that
// were given no function to look up the cluster version.
func FirstVersion() ClusterVersion { return Version1 }

// VersionRange is an inclusive range of cluster versions. The zero value means
// Version1 only, which is the range that releases without cluster versions
// support.
type VersionRange struct {
	Min ClusterVersion `json:"min"`
	Max ClusterVersion `json:"max"`
}

// SupportedVersions is the range of cluster versions that this release
// supports.
var SupportedVersions = VersionRange{Min: MinVersion, Max: MaxVersion}

// WithDefault returns the range, with the zero value replaced by the explicit
// range of Version1.
func (l VersionRange) WithDefault() VersionRange {
	if l == (VersionRange{}) {
		return VersionRange{Min: Version1, Max: Version1}
	}
	return l
}

// Contains reports whether the version is in the range.
func (l VersionRange) Contains(level ClusterVersion) bool {
	l = l.WithDefault()
	return l.Min <= level && level <= l.Max
}

// Validate returns an error if the range is empty or starts at 0.
func (l VersionRange) Validate() error {
	if l = l.WithDefault(); l.Min == 0 || l.Max < l.Min {
		return fmt.Errorf("cluster versions %d to %d are not a valid range", l.Min, l.Max)
	}
	return nil
}

// String returns the range for display: "cluster version 1" or "cluster
// versions 1 to 2".
func (l VersionRange) String() string {
	if l = l.WithDefault(); l.Min != l.Max {
		return fmt.Sprintf("cluster versions %d to %d", l.Min, l.Max)
	}
	return fmt.Sprintf("cluster version %d", l.Min)
}
