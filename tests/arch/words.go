package arch

// An oldWord is a word that had several meanings, or for which the field has a
// better term. In the packages listed in in, no declared identifier and no file
// name may use it.
type oldWord struct {
	// say matches single words within a name, in identifiers and file names.
	// The name ShardLetters has the words shard and letters.
	say []string
	// name matches a complete name exactly.
	name []string
	// file matches the name of a file without its extension and without _test.
	file []string
	// in lists the packages; "/..." at the end includes the packages below.
	in []string
	// after lists words that make the old word acceptable if they directly precede
	// it.
	after []string
	// instead is the word or phrase to use instead.
	instead string
}

// oldWords is the deny list. It excludes names in the public API, metrics and
// configuration, because they are stable, and ordinary English: a stream is
// held open, and a list is sorted.
var oldWords = []oldWord{
	{say: []string{"send", "sends"}, in: []string{"journal", "journal/eventlog/...", "journal/store/...", "host/deliver/..."},
		instead: "message, outbox, inbox; Send is the command of a client"},
	{name: []string{"send", "Sends", "sends"}, file: []string{"send", "send_post", "sends"}, in: []string{"host/entity/..."},
		instead: "propose for an entry; message, outbox or inbox for what entities send"},
	{say: []string{"post", "posts", "postbox", "mail"}, file: []string{"postread"}, in: []string{"journal", "journal/eventlog/...", "journal/store/...", "host/entity/...", "host/deliver/...", "tests/sim/..."},
		instead: "OutboxOp, EntryOutbox, outboxBatch, outboxCounts"},
	{say: []string{"letter", "letters"}, after: []string{"dead"}, in: []string{"cmd/...", "host/...", "journal/...", "sharding/...", "tests/..."},
		instead: "deadLetter, as the command line and the API say"},
	{say: []string{"life", "lives", "lived", "asleep", "rests", "resting"}, name: []string{"putToRest"}, in: []string{"host/entity/...", "host"},
		instead: "exists, existence; stopped for an entity that does not run"},
	{say: []string{"living"}, in: []string{"host/...", "journal/..."}, instead: "existing, ListExisting"},
	{say: []string{"resting", "rests"}, in: []string{"journal/eventlog/...", "journal/store/..."}, instead: "stopped, FlagStopped"},
	{name: []string{"Rest"}, in: []string{"journal/store/...", "journal/eventlog/..."}, instead: "Pause"},
	{name: []string{"RestRecord", "Rest"}, in: []string{"journal/raftgroup/..."}, instead: "sleep, FinalRecord"},
	{name: []string{"hold", "holds", "held", "Hold", "Held"}, file: []string{"hold", "held"}, in: []string{"host/entity/...", "host/deliver/...", "host/edge/...", "journal/eventlog/...", "journal/raftgroup/..."},
		instead: "what waits for what: awaitCommit, awaitsBinding, FreezeLanes, HasReplica, StateIndex, logPin, retryLater"},
	{name: []string{"remember", "remembers", "remembered", "reminder", "remembering", "recall", "recalled", "recallTypes"}, file: []string{"remember"}, in: []string{"host/..."},
		instead: "autostart for entities; an entry of the window for command ids; saveIdentity, addPeer"},
	{name: []string{"evDecided", "unsure", "blame", "goOn", "cameBack", "again", "outcome"}, in: []string{"host/entity/..."},
		instead: "a verb and its object: proposalDone, acceptOutput, answerStored, mayBeOlder, recordFault, detachVisit, visitDone"},
	{say: []string{"fold", "folds", "folded", "folding", "foldlog"}, in: []string{"host", "host/entity/..."},
		instead: "dormant for an entity that is packed; StateAt, replay for a state of events"},
	{file: []string{"memory", "packed", "filter", "forgotten"}, in: []string{"host/entity"}, instead: "the package window has them"},
	{say: []string{"ordering", "orderings"}, file: []string{"deps_order", "orders"}, in: []string{"host/...", "tests/..."}, instead: "EventOrder, eventorder.go"},
	{name: []string{"Orders"}, in: []string{"host/...", "tests/..."}, instead: "ClusterAdmin"},
	{say: []string{"order"}, in: []string{"sharding/coordinator/..."}, instead: "Operation, for what an operator asks for"},
	{say: []string{"act", "acts"}, file: []string{"care"}, in: []string{"host/...", "cmd/..."}, instead: "audit, AdminAction; supervise.go"},
	{say: []string{"care"}, in: []string{"..."}, instead: "supervise"},
	{say: []string{"stages"}, in: []string{"host"}, instead: "open.go, raftlog.go"},
	{say: []string{"elsewhere", "hop"}, name: []string{"passedOn"}, file: []string{"source"}, in: []string{"host/edge/..."}, instead: "leaderproxy, local, remote, proxied, fromPeer"},
	{say: []string{"book"}, after: []string{"address"}, in: []string{"host/...", "sharding/..."}, instead: "addressBook"},
	{say: []string{"paint", "painting", "picture"}, in: []string{"host/...", "sharding/...", "tests/..."}, instead: "clusterView"},
	{name: []string{"Waiting", "waiter"}, file: []string{"waiting"}, in: []string{"host/cluster/..."}, instead: "applicants"},
	{say: []string{"scene"}, in: []string{"sharding/...", "host/..."}, instead: "view"},
	{say: []string{"hollow"}, in: []string{"host/..."}, instead: "headOnly"},
	{say: []string{"keeping"}, in: []string{"host/..."}, instead: "RetentionOverride"},
	{say: []string{"tally"}, in: []string{"host/entity/..."}, instead: "typeCounters"},
	{name: []string{"ahead", "askAhead", "askedAhead"}, file: []string{"ahead"}, in: []string{"host/entity"}, instead: "readRound"},
	{file: []string{"fits", "pace", "overrun", "readers", "keeping", "hollow", "tally", "rest"}, in: []string{"host/entity/..."},
		instead: "entrysize, timerrate, handover, loaders and others: the subject, not what is done"},
	{file: []string{"timers_of", "living", "importing", "background", "lives", "applier_lives", "lives_apart"}, in: []string{"journal/..."},
		instead: "timers_list, existing, import, sweep, generations"},
	{say: []string{"hunt"}, file: []string{"park", "remains", "refound", "retain", "cut"}, in: []string{"journal/raftgroup/..."},
		instead: "election, sleep, log_retention, offline"},
	{say: []string{"transfer", "transfers"}, in: []string{"host/backup/..."}, file: []string{"transfers"}, instead: "backup; transfer is leadership's"},
	{say: []string{"lane", "lanes"}, in: []string{"api/client/..."}, instead: "shardRoute"},
	{say: []string{"way", "ways"}, in: []string{"api/client/..."}, instead: "nodeStream"},
	{say: []string{"flow"}, in: []string{"host/router/..."}, instead: "shardRoute"},
	{say: []string{"twin"}, in: []string{"..."}, instead: "model, or product in tests/sim"},
	{say: []string{"sorts"}, in: []string{"..."}, instead: "kinds"},
}
