package entityfile

import (
	"encoding/json"
	"errors"
	"hash/crc32"
	"time"
)

// Faults of a file.
var (
	// ErrDamaged means that the file's content has changed since it was
	// written.
	ErrDamaged = errors.New("the file is damaged")
	// ErrUnsupported means that the file is not an entity file, or is one of a
	// later release.
	ErrUnsupported = errors.New("the file was not written by 'hostd pull' of this release")
)

// About describes the entity of a file.
type About struct {
	EntityType   string          `json:"entityType"`
	EntityID     string          `json:"entityId"`
	Sequence     uint64          `json:"sequence"` // sequence of the last event
	ModuleDigest string          `json:"moduleDigest"`
	ModuleBytes  int             `json:"moduleBytes"`
	Manifest     json.RawMessage `json:"manifest"`
	PulledAt     time.Time       `json:"pulledAt"`
	Release      string          `json:"release"`
	// Base is set if the first events were truncated: the file then begins with
	// a state.
	Base *Base `json:"base,omitempty"`
}

// Base is the state that a history starts from.
type Base struct {
	Sequence uint64 `json:"sequence"` // sequence of the last event that the state includes
	State    []byte `json:"-"`        // the module's encoding of the state; stored in a block of its own
	// StateVersion is the version of a durable-state type's state, if another
	// module made it; 0 means the module's own.
	StateVersion int `json:"stateVersion,omitempty"`
}

// Event is one event.
type Event struct {
	Sequence     uint64    `json:"sequence"`
	RecordedAt   time.Time `json:"recordedAt"`
	EventType    string    `json:"eventType"`
	Data         []byte    `json:"data"`
	CommandID    string    `json:"commandId"`
	Tags         []string  `json:"tags,omitempty"`
	ModuleDigest string    `json:"moduleDigest"`
}

const (
	magic   = "hostden\n"
	version = 1

	kindAbout  = 1
	kindModule = 2
	kindEvent  = 3
	kindState  = 4
	kindEnd    = 255

	// maxBlock limits a block's payload, pieceBytes is the payload size of a
	// module's blocks, and MaxModuleBytes limits a module.
	maxBlock       = 4 << 20
	pieceBytes     = 1 << 20
	MaxModuleBytes = 32 << 20
	headBytes      = 9
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// sumOf returns the checksum of a block.
func sumOf(number uint64, kind byte, payload []byte) uint32 {
	head := [9]byte{byte(number), byte(number >> 8), byte(number >> 16), byte(number >> 24), byte(number >> 32), byte(number >> 40), byte(number >> 48), byte(number >> 56), kind}
	return crc32.Update(crc32.Checksum(head[:], castagnoli), castagnoli, payload)
}
