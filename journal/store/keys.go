package store

import (
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// Class is the kind of value of a key.
type Class byte

// Classes of keys. Every key starts with shard u32 and generation u32 (both big
// endian) and the class.
const (
	ClassApplied Class = 'a' // applied state of a shard: Applied
	ClassOutbox  Class = 'b' // an unacknowledged message: journal.Message
	ClassDue     Class = 'd' // a timer, by its due time: Timer
	ClassEntity  Class = 'e' // entity row: Head
	ClassInbox   Class = 'i' // the highest message number that an entity received from a source
	ClassMeta    Class = 'm' // a pair of the metadata machine
	ClassOrder   Class = 'o' // the records of each raft entry: order block
	ClassRecord  Class = 'r' // records of one entity: event block
	// ClassSnapshot is a snapshot of an entity, encoded as in its raft entry.
	ClassSnapshot Class = 's'
	// ClassTimer is the due time of a timer, by its entity and name.
	ClassTimer Class = 't'
	// ClassCount holds the message totals of a shard, the number of waiting
	// messages of an entity, and the last message number of a channel.
	ClassCount Class = 'q'
	// ClassDeadLetter is a dead letter: journal.DeadLetter.
	ClassDeadLetter Class = 'x'
	// ClassImport is the progress of the shard's import: Import.
	ClassImport Class = 'p'
	// ClassRun is the index of open runs. It has the start time of each open run,
	// and the number of open runs of each entity type.
	ClassRun Class = 'w'
)

const prefixBytes = 9

// recordSuffixBytes is the length of the part after the entity in a record key:
// sequence, index and ordinal of the block's last record.
const recordSuffixBytes = 8 + 8 + 4

// AppendPrefix appends the common prefix of all keys of a class in a shard.
func AppendPrefix(dst []byte, shard sharding.ShardID, generation uint32, class Class) []byte {
	dst = binary.BigEndian.AppendUint32(dst, uint32(shard))
	dst = binary.BigEndian.AppendUint32(dst, generation)
	return append(dst, byte(class))
}

// AppendEntity appends an entity as encoded in keys: type, zero, id, zero.
// Neither name may contain a zero byte.
func AppendEntity(dst []byte, typ, id []byte) []byte {
	dst = append(dst, typ...)
	dst = append(dst, 0)
	dst = append(dst, id...)
	return append(dst, 0)
}

// AppendEntityID is AppendEntity for an EntityID.
func AppendEntityID(dst []byte, e sharding.EntityID) []byte {
	dst = append(dst, e.Type...)
	dst = append(dst, 0)
	dst = append(dst, e.ID...)
	return append(dst, 0)
}

// SplitEntity is the inverse of AppendEntity. rest is the remainder. Both are
// substrings of key.
func SplitEntity(key string) (e sharding.EntityID, rest string, err error) {
	typ, key, ok := strings.Cut(key, "\x00")
	id, rest, ok2 := strings.Cut(key, "\x00")
	if !ok || !ok2 || len(typ) == 0 || len(id) == 0 {
		return e, "", fmt.Errorf("%w: key without an entity", journal.ErrDamaged)
	}
	return sharding.EntityID{Type: typ, ID: id}, rest, nil
}

// AppendRecordSuffix appends the end of a record key: the position of the last
// record of its block.
func AppendRecordSuffix(dst []byte, last journal.Sequence, at journal.Position) []byte {
	dst = binary.BigEndian.AppendUint64(dst, uint64(last))
	dst = binary.BigEndian.AppendUint64(dst, at.Index)
	return binary.BigEndian.AppendUint32(dst, at.Ordinal)
}

// CutRecordSuffix is the inverse of AppendRecordSuffix.
func CutRecordSuffix(b []byte) (last journal.Sequence, at journal.Position, err error) {
	if len(b) != recordSuffixBytes {
		return 0, at, fmt.Errorf("%w: a record key with %d bytes after the entity", journal.ErrDamaged, len(b))
	}
	at = journal.Position{Index: binary.BigEndian.Uint64(b[8:]), Ordinal: binary.BigEndian.Uint32(b[16:])}
	return journal.Sequence(binary.BigEndian.Uint64(b)), at, nil
}

// AppendSnapshotSuffix appends the end of a snapshot key.
func AppendSnapshotSuffix(dst []byte, sequence journal.Sequence) []byte {
	return binary.BigEndian.AppendUint64(dst, uint64(sequence))
}

// AppendIndex appends the end of an order key.
func AppendIndex(dst []byte, index uint64) []byte {
	return binary.BigEndian.AppendUint64(dst, index)
}

// Key is a decoded key.
type Key struct {
	Shard      sharding.ShardID
	Generation uint32
	Class      Class
	Suffix     []byte // aliases the key
}

// ParseKey decodes a key, except its Suffix.
func ParseKey(key []byte) (Key, error) {
	if len(key) < prefixBytes {
		return Key{}, fmt.Errorf("%w: key of %d bytes", journal.ErrDamaged, len(key))
	}
	k := Key{
		Shard:      sharding.ShardID(binary.BigEndian.Uint32(key)),
		Generation: binary.BigEndian.Uint32(key[4:]),
		Class:      Class(key[8]),
		Suffix:     key[prefixBytes:],
	}
	switch k.Class {
	case ClassApplied, ClassEntity, ClassMeta, ClassOrder, ClassRecord, ClassSnapshot, ClassDue, ClassTimer,
		ClassOutbox, ClassInbox, ClassCount, ClassDeadLetter, ClassImport, ClassRun:
		return k, nil
	}
	return Key{}, fmt.Errorf("%w: key class %#x", journal.ErrDamaged, byte(k.Class))
}

// DescribeKey describes a key's class and shard for people. It never includes
// an entity id.
func DescribeKey(key []byte) string {
	k, err := ParseKey(key)
	if err != nil {
		return "a key of an unknown class"
	}
	names := map[Class]string{
		ClassApplied: "applied state", ClassEntity: "entity row", ClassMeta: "metadata pair",
		ClassOrder: "order block", ClassRecord: "event block", ClassSnapshot: "entity snapshot",
		ClassDue: "due timer", ClassTimer: "timer",
		ClassOutbox: "send", ClassInbox: "inbox counter", ClassCount: "channel counter", ClassDeadLetter: "dead letter",
		ClassImport: "import progress", ClassRun: "open run",
	}
	return fmt.Sprintf("%s of shard %d", names[k.Class], k.Shard)
}
