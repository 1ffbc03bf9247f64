package sharding

import "fmt"

// Level is the version of what a cluster writes: every record, section, entry,
// metadata command, stored value and file that more than one node, or a later
// start of another release, may read. It is part of the metadata (absent there:
// Level1), an operator raises it once every member speaks it, and it never
// falls. [sharding/meta/FORMAT.md] has the rule; in short:
//
// Who writes something that an earlier level does not have asks for the level
// first, and writes it at its level and above only. Who reads knows everything
// of MinLevel to MaxLevel at any time, whatever the level is: replicas of other
// shards hear of a raise at other moments, so that what is applied never
// depends on it. What a reader does not know stops it by name.
type Level uint32

// The levels.
const (
	// Level1 is the first release's.
	Level1 Level = 1
	// Level2 has what is gated by the constants below.
	Level2 Level = 2
	// Level3 has what is gated by the constants of Level3 below.
	Level3 Level = 3

	// MinLevel and MaxLevel are what this release speaks.
	MinLevel = Level1
	MaxLevel = Level3
)

// What is written from a level on. Something new gets a line here, and its
// writer asks "level >= sharding.LevelX".
const (
	// LevelMemberSpeaks: members of the metadata have the member "speaks".
	LevelMemberSpeaks = Level2
	// LevelSums: applied marks in the store, and in the snapshots of shards, end
	// with the sums of the shard's rows.
	LevelSums = Level2
	// LevelHops: what delivers a message, and what it sends, says how many
	// messages led to it.
	LevelHops = Level2
	// LevelProofs: the logs of shards have entries with digests of their rows.
	LevelProofs = Level2
	// LevelDowned: the metadata keeps which starts operators put down when their
	// nodes are no members any more.
	LevelDowned = Level2
	// LevelBudgets: limits of entity types have fuelPerSecond and bytesPerSecond.
	LevelBudgets = Level2
	// LevelSchemas: the cluster takes modules whose manifests have schemas, or
	// more than the 64 KiB that earlier releases read.
	LevelSchemas = Level2
	// LevelPolicy: a cluster is created with its policy, which has deadAfter.
	LevelPolicy = Level2
	// LevelPeerAddress: members of the metadata have the member "peerAddress".
	// Nodes find each other there, and clients' listeners serve no other nodes any
	// more.
	LevelPeerAddress = Level2
	// LevelRecoverShard: the metadata takes that a shard goes on with one replica.
	LevelRecoverShard = Level2
	// LevelRollbackOf: a rollback names the revision that it takes back, and the
	// binding keeps which one that was.
	LevelRollbackOf = Level2
	// LevelRoles: the metadata keeps roles and their bindings.
	LevelRoles = Level2
	// LevelSignatures: the metadata keeps the signatures of modules.
	LevelSignatures = Level2
	// LevelRemoveModule: modules are removed from the metadata, and those of a
	// cluster and of an uploader are bounded.
	LevelRemoveModule = Level2
	// LevelModuleRetention: the metadata keeps since when modules are not needed,
	// has them removed after a while, and goes by what is set of their number.
	LevelModuleRetention = Level2
	// LevelTokens: the metadata keeps the hashes of tokens.
	LevelTokens = Level2
	// LevelInternal: the cluster takes modules whose manifests mark commands
	// internal. Earlier releases pass the mark over.
	LevelInternal = Level2
	// LevelSends: the cluster takes modules whose manifests say to which types
	// they send, or from which they accept messages. Earlier releases pass that
	// over.
	LevelSends = Level2
	// LevelBindOver: a binding names the revision that it comes in the place of.
	LevelBindOver = Level2
	// LevelPrincipal: nodes tell each other who makes the requests that they pass
	// on.
	LevelPrincipal = Level2
	// LevelRecordPrincipal: records of types whose manifests ask for it have who
	// made their commands. Earlier releases pass that over.
	LevelRecordPrincipal = Level2
	// LevelOwners: bindings of entity types have owners.
	LevelOwners = Level2
	// LevelChanges: bindings of entity types keep their last changes, and who made
	// them.
	LevelChanges = Level2
	// LevelRollbackWith: a rollback takes back several types at once, and keeps
	// who forced it.
	LevelRollbackWith = Level2
	// LevelVerified: the metadata keeps what came of verifying modules.
	LevelVerified = Level2
	// LevelStateVersions: types that keep their latest state number its form, and
	// records say which one theirs has. Earlier releases pass that over.
	LevelStateVersions = Level2
	// LevelUpcasts: nodes ask each other for events in today's form.
	LevelUpcasts = Level2
	// LevelRecordTrace: records of commands whose traces are sampled have the span
	// in which they were made, as have the messages and timers that are stored
	// because of them, and nodes tell each other in which span they ask.
	LevelRecordTrace = Level2
	// LevelRollouts: a module serves a part of the entities of a type.
	LevelRollouts = Level2
	// LevelHolds: the entities of a type are kept from leaving records while they
	// are looked at.
	LevelHolds = Level2
	// LevelPrincipalVariable: prefixes of ids in roles may have ${principal}, and a
	// role with ${principal.name} is bound to subjects of one kind.
	LevelPrincipalVariable = Level3
	// LevelPaced: the logs of shards have entries that leave work to later ones,
	// and the heads and timers of entities say which life they are of.
	LevelPaced = Level3
	// LevelOutputLimits: nodes tell each other that a command has failed because
	// its output is over a limit or has an invalid value. Below it that is a guest
	// fault.
	LevelOutputLimits = Level3
	// LevelSnapshotProofs: bindings and rollouts name the modules whose snapshots
	// stand for truncated histories, by what was proved of them, and results of
	// verifications name them too. A type is held while a rollout is under way.
	LevelSnapshotProofs = Level3
	// LevelSnapshotStates: the cluster takes modules whose event-sourced types list
	// the forms of states that they read in snapshots, and keeps modules as long as
	// another one reads snapshots of theirs.
	LevelSnapshotStates = Level3
	// LevelAnswers: records of messages whose outcome is wanted, and the messages
	// that bring it back, are marked. Types take messages from types of other
	// owners only if their manifests name them.
	LevelAnswers = Level3
	// LevelFingerprints: rows of shards' orders have fingerprints of their records,
	// by which the cursors of subscriptions name the history that they are of.
	LevelFingerprints = Level3
	// LevelLeft: the metadata keeps which nodes were members and have left.
	LevelLeft = Level3
	// LevelLeaving: members of the metadata have the member "leaving", so that an
	// order to leave outlives that its node is down, starts anew or loses its disk.
	LevelLeaving = Level3
	// LevelUploaderBytes: the bytes of the modules of one uploader are bounded.
	LevelUploaderBytes = Level3
	// LevelVerifying: an activation on a type with truncated histories is a
	// rollout that is verified first, and that names limits.
	LevelVerifying = Level3
)

// FirstLevel is the way to ask for the level of who was given none.
func FirstLevel() Level { return Level1 }

// Levels is a range of levels, both ends included. The zero value is that of
// who does not know of levels: Level1 alone.
type Levels struct {
	Min Level `json:"min"`
	Max Level `json:"max"`
}

// Speaks is what this release speaks.
var Speaks = Levels{Min: MinLevel, Max: MaxLevel}

// Known returns the range with the zero value spelled out.
func (l Levels) Known() Levels {
	if l == (Levels{}) {
		return Levels{Min: Level1, Max: Level1}
	}
	return l
}

// Has reports whether the level is in the range.
func (l Levels) Has(level Level) bool {
	l = l.Known()
	return l.Min <= level && level <= l.Max
}

// Validate reports a range that begins at 0 or ends before it begins.
func (l Levels) Validate() error {
	if l = l.Known(); l.Min == 0 || l.Max < l.Min {
		return fmt.Errorf("levels %d to %d are no range", l.Min, l.Max)
	}
	return nil
}

// String is for people: "level 1", or "levels 1 to 2".
func (l Levels) String() string {
	if l = l.Known(); l.Min != l.Max {
		return fmt.Sprintf("levels %d to %d", l.Min, l.Max)
	}
	return fmt.Sprintf("level %d", l.Min)
}
