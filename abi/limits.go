package abi

// Limits are the limits of a guest's exports, memory and output. Sizes are in
// bytes unless the name says otherwise. The zero value allows nothing; start
// from DefaultLimits.
type Limits struct {
	// Of one call.
	RequestBytes  int // input of hostd_load, hostd_handle and hostd_query; hostd_load may have LoadExtraBytes more
	BatchBytes    int // events in one hostd_apply, unless a single event is larger
	OutputBytes   int // entire output span of hostd_handle and hostd_query, checked before it is copied
	ReplyBytes    int // payload of a reply
	SnapshotBytes int // hostd_snapshot, and the payload of a state frame
	ManifestBytes int // hostd_describe

	// Fuel of one call, in the units of FUEL.md: mostly a tenth to a quarter of
	// a nanosecond.
	CommandFuel int // hostd_handle
	QueryFuel   int // hostd_query
	EventFuel   int // hostd_apply, for each event in its input
	LoadFuel    int // hostd_load, hostd_snapshot, hostd_drop and hostd_buffer
	StartFuel   int // _initialize, hostd_abi and hostd_describe

	// Of one command.
	EventBytes        int // payload of an event, a send or a timer
	CommandEvents     int // number of events
	CommandEventBytes int // payloads, types and tags of all events
	EventTags         int // number of tags on one event
	CommandSends      int // number of sends, with and without answer or token
	CommandTimers     int // number of timers set and cancelled
	CommandSendBytes  int // all sends and timers
	NameBytes         int // a name: command, query, event type, timer, tag, rejection code
	MessageBytes      int // message of a rejection
	LogLines          int // log lines of one call; further lines are dropped and counted
	LogLineBytes      int // size of one log line; the rest is truncated

	// Of a module.
	ModuleBytes       int // the file
	FunctionBodyBytes int // the code of one function
	FunctionLocals    int // number of locals of one function, without parameters
	TableElements     int // number of elements of one table
	MemoryBytes       int // linear memory of an instance, unless configured
	MemoryBytesMax    int // upper limit of the configuration
}

// LoadExtraBytes is the number of bytes by which the input of hostd_load may
// exceed Limits.RequestBytes, so that a snapshot of the maximum size fits
// together with the other frames.
const LoadExtraBytes = 1 << 10

// Sizes that are part of the contract and cannot be configured.
const (
	MaxEntityTypeBytes = 64
	MaxEntityIDBytes   = 256
	MaxNameBytes       = 255 // name of a command, query, event type, timer, tag or rejection code
	MaxTokenBytes      = 32  // token of a send
	MaxWaits           = 8   // number of waits of a run that the host keeps
	MaxWaitBytes       = 120 // size of each of these waits
)

// DefaultLimits returns the limits of the contract.
func DefaultLimits() Limits {
	return Limits{
		RequestBytes:  1 << 20,
		BatchBytes:    256 << 10,
		OutputBytes:   2 << 20,
		ReplyBytes:    256 << 10,
		SnapshotBytes: 1 << 20,
		ManifestBytes: 256 << 10,

		CommandFuel: 400_000_000,
		QueryFuel:   400_000_000,
		EventFuel:   800_000_000,
		LoadFuel:    2_000_000_000,
		StartFuel:   4_000_000_000,

		EventBytes:        64 << 10,
		CommandEvents:     128,
		CommandEventBytes: 256 << 10,
		EventTags:         16,
		CommandSends:      128,
		CommandTimers:     128,
		CommandSendBytes:  256 << 10,
		NameBytes:         MaxNameBytes,
		MessageBytes:      4 << 10,
		LogLines:          32,
		LogLineBytes:      1 << 10,

		ModuleBytes:       16 << 20,
		FunctionBodyBytes: 64 << 10,
		FunctionLocals:    512,
		TableElements:     65536,
		MemoryBytes:       64 << 20,
		MemoryBytesMax:    256 << 20,
	}
}
