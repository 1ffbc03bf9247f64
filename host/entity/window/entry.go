package window

import (
	"encoding/binary"
	"encoding/hex"

	"github.com/hostd/hostd/journal"
)

// entry is a remembered command as bytes of a window, in memory only:
//
//	size u32, of the whole entry | flags u8 | bytes of the id u8 | events u16 |
//	hash u64 | recorded at i64 | sequence u64 | id | reply
//
// An id of 32 hexadecimal digits, as clients and servers make them, is stored
// as 16 bytes.
type entry[T bytestring] struct{ b T }

// bytestring is the memory that holds packed commands: an immutable string or a
// growing byte slice.
type bytestring interface{ ~string | ~[]byte }

const (
	packedHead = 32

	packedServer = 1 << 0
	packedHex    = 1 << 1
)

// name is a command id in its packed form.
type name struct {
	text journal.CommandID // the id, if it is not hexadecimal
	raw  [16]byte          // the id's bytes, if it is hexadecimal
	hex  bool
}

const (
	ff16 = "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"
	// digits has the value of each lower-case hexadecimal digit, and 255 for
	// any other byte.
	digits = ff16 + ff16 + ff16 +
		"\x00\x01\x02\x03\x04\x05\x06\x07\x08\x09\xff\xff\xff\xff\xff\xff" + ff16 + ff16 +
		"\xff\x0a\x0b\x0c\x0d\x0e\x0f\xff\xff\xff\xff\xff\xff\xff\xff\xff" + ff16 +
		ff16 + ff16 + ff16 + ff16 + ff16 + ff16 + ff16 + ff16
)

func nameOf(id journal.CommandID) (n name) {
	n.text = id
	if len(id) != 2*len(n.raw) {
		return n
	}
	for i := range n.raw {
		hi, lo := digits[id[2*i]], digits[id[2*i+1]]
		if hi|lo > 15 {
			return n
		}
		n.raw[i] = hi<<4 | lo
	}
	n.text, n.hex = "", true
	return n
}

func (n *name) appendText(b []byte) []byte {
	if !n.hex {
		return append(b, n.text...)
	}
	return hex.AppendEncode(b, n.raw[:])
}

// idBytes returns the id's bytes as stored in a window.
func (n *name) idBytes() []byte {
	if n.hex {
		return n.raw[:]
	}
	return []byte(n.text)
}

func (n *name) bytes() int {
	if n.hex {
		return len(n.raw)
	}
	return len(n.text)
}

func packedBytes(n *name, r *Command) int { return packedHead + n.bytes() + len(r.Reply) }

// appendPacked appends the packed form of r, whose id is n.
func appendPacked(b []byte, n *name, r *Command) []byte {
	flags := byte(0)
	if n.hex {
		flags = packedHex
	}
	if r.Server {
		flags |= packedServer
	}
	b = binary.LittleEndian.AppendUint32(b, uint32(packedBytes(n, r)))
	b = append(b, flags, byte(n.bytes()))
	b = binary.LittleEndian.AppendUint16(b, r.Events)
	b = binary.LittleEndian.AppendUint64(b, r.Hash)
	b = binary.LittleEndian.AppendUint64(b, uint64(r.RecordedAt))
	b = binary.LittleEndian.AppendUint64(b, uint64(r.Sequence))
	if n.hex {
		b = append(b, n.raw[:]...)
	} else {
		b = append(b, n.text...)
	}
	return append(b, r.Reply...)
}

// next splits off the first command.
func next[T bytestring](s T) (p entry[T], rest T) {
	n := int(s[0]) | int(s[1])<<8 | int(s[2])<<16 | int(s[3])<<24
	return entry[T]{s[:n]}, s[n:]
}

func (p entry[T]) u64(at int) uint64 {
	s := p.b[at : at+8]
	return uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
		uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
}

func (p entry[T]) server() bool               { return p.b[4]&packedServer != 0 }
func (p entry[T]) hex() bool                  { return p.b[4]&packedHex != 0 }
func (p entry[T]) recordedAt() int64          { return int64(p.u64(16)) }
func (p entry[T]) sequence() journal.Sequence { return journal.Sequence(p.u64(24)) }
func (p entry[T]) name() T                    { return p.b[packedHead : packedHead+int(p.b[5])] }
func (p entry[T]) reply() T                   { return p.b[packedHead+int(p.b[5]):] }

// is reports whether the command has the id n.
func (p entry[T]) is(n *name) bool {
	if n.hex {
		return p.hex() && string(p.name()) == string(n.raw[:])
	}
	return !p.hex() && string(p.name()) == string(n.text)
}

// decodeName returns the command's id.
func (p entry[T]) decodeName() (n name) {
	if n.hex = p.hex(); n.hex {
		copy(n.raw[:], p.name())
	} else {
		n.text = journal.CommandID(p.name())
	}
	return n
}

func (p entry[T]) appendID(b []byte) []byte {
	if p.hex() {
		var raw [16]byte
		copy(raw[:], p.name())
		return hex.AppendEncode(b, raw[:])
	}
	return append(b, p.name()...)
}

// open returns the command without its id. The reply is a copy.
func (p entry[T]) open() Command {
	r := p.numbers()
	if reply := p.reply(); len(reply) > 0 {
		r.Reply = append(r.Reply, reply...)
	}
	return r
}

// borrow returns the command without its id. The reply aliases the window's
// memory.
func borrow(p entry[[]byte]) Command {
	r := p.numbers()
	r.Reply = p.reply()
	return r
}

func (p entry[T]) numbers() Command {
	return Command{
		Hash: p.u64(8), RecordedAt: p.recordedAt(), Sequence: p.sequence(),
		Events: uint16(p.b[6]) | uint16(p.b[7])<<8, Server: p.server(),
	}
}

// Batch is a batch of commands, the oldest first, that the reader of the
// records passes to a window.
type Batch struct {
	packed []byte
	count  int
	Before int64 // if not 0, there may be earlier commands, but none that is younger than this time
	// Skipped means that the read left out records for other reasons than the
	// limits of the window, so that commands up to Before may be among them.
	Skipped bool
}

// Bytes is the size of the batch in memory.
func (b *Batch) Bytes() int { return len(b.packed) }

func (b *Batch) Add(rec *journal.Record) {
	n := nameOf(rec.CommandID)
	b.packed = appendPacked(b.packed, &n, &Command{
		Hash: rec.CommandHash, Reply: rec.Reply, RecordedAt: rec.RecordedAt,
		Sequence: rec.Last(), Events: uint16(len(rec.Events)), Server: rec.Flags&journal.FlagServerID != 0,
	})
	b.count++
}
