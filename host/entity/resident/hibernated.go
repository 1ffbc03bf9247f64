package resident

import (
	"encoding/binary"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// Hibernated is a hibernated entity: one in memory that was not used recently, as
// described by its record. Its state stays in its guest.
type Hibernated struct {
	ID                      sharding.EntityID
	Key                     uint32
	Shard                   sharding.ShardID
	Instance, Handle        uint32 // where the entity's state is: the number of the instance, and the handle there
	Exists, Stopped, Costly bool
	Touched                 Tick
	Replay                  [3]int32
	Sequence                journal.Sequence
	Hash                    journal.Hash
	Window                  string // packed commands, as Window.Small returns them
	Forgot                  int64  // result of Window.Forgot
}

// The format of a record, little endian, padded to eight bytes:
//
//	size u16 | flags u16 | key u32 | shard u32 | instance u32 | handle u32 |
//	type u16 | bytes of the id u16 | touched u32 | replay 3 x u32 |
//	sequence u64 | hash of the chain 32 | bytes of the window u16 | id | window |
//	if the window has forgotten commands, Forgot i64
const (
	recordHead = 82

	recordGone    = 1 << 0
	recordExists  = 1 << 1
	recordStopped = 1 << 2
	recordForgot  = 1 << 3
	recordCostly  = 1 << 4
)

// Slot is the address of a record: its page, and its offset in the page divided
// by eight. 0 means none.
type Slot uint32

const pageBits = 15 // pages of 256 KiB

func slotOf(page uint32, offset int) Slot { return Slot(page<<pageBits | uint32(offset/8)) }

func (p Slot) page() uint32 { return uint32(p) >> pageBits }
func (p Slot) offset() int  { return int(p&(1<<pageBits-1)) * 8 }

// record is the bytes of a hibernated entity.
type record []byte

func (r record) key() uint32             { return binary.LittleEndian.Uint32(r[4:]) }
func (r record) shard() sharding.ShardID { return sharding.ShardID(binary.LittleEndian.Uint32(r[8:])) }
func (r record) instance() uint32        { return binary.LittleEndian.Uint32(r[12:]) }
func (r record) handle() uint32          { return binary.LittleEndian.Uint32(r[16:]) }
func (r record) kind() uint16            { return binary.LittleEndian.Uint16(r[20:]) }
func (r record) lastUse() Tick           { return Tick(binary.LittleEndian.Uint32(r[24:])) }
func (r record) id() []byte {
	return r[recordHead : recordHead+int(binary.LittleEndian.Uint16(r[22:]))]
}

// recordBytes is the length of an entity's record.
func recordBytes(d *Hibernated) int {
	size := recordHead + len(d.ID.ID) + len(d.Window)
	if d.Forgot != 0 {
		size += 8
	}
	return (size + 7) &^ 7
}

// put writes the record of an entity. kind is the number of its activation in
// the log.
func (r record) put(d *Hibernated, kind uint16) {
	flags := uint16(0)
	if d.Exists {
		flags |= recordExists
	}
	if d.Stopped {
		flags |= recordStopped
	}
	if d.Forgot != 0 {
		flags |= recordForgot
	}
	if d.Costly {
		flags |= recordCostly
	}
	le := binary.LittleEndian
	le.PutUint16(r[0:], uint16(len(r)))
	le.PutUint16(r[2:], flags)
	le.PutUint32(r[4:], d.Key)
	le.PutUint32(r[8:], uint32(d.Shard))
	le.PutUint32(r[12:], d.Instance)
	le.PutUint32(r[16:], d.Handle)
	le.PutUint16(r[20:], kind)
	le.PutUint16(r[22:], uint16(len(d.ID.ID)))
	le.PutUint32(r[24:], uint32(d.Touched))
	le.PutUint32(r[28:], uint32(d.Replay[0]))
	le.PutUint32(r[32:], uint32(d.Replay[1]))
	le.PutUint32(r[36:], uint32(d.Replay[2]))
	le.PutUint64(r[40:], uint64(d.Sequence))
	copy(r[48:], d.Hash[:])
	le.PutUint16(r[80:], uint16(len(d.Window)))
	at := recordHead + copy(r[recordHead:], d.ID.ID)
	at += copy(r[at:], d.Window)
	if d.Forgot != 0 {
		le.PutUint64(r[at:], uint64(d.Forgot))
	}
}

// open decodes a record of the given type.
func (r record) open(typ string) Hibernated {
	le := binary.LittleEndian
	flags, id := le.Uint16(r[2:]), r.id()
	window := r[recordHead+len(id):][:le.Uint16(r[80:])]
	d := Hibernated{
		ID: sharding.EntityID{Type: typ, ID: string(id)}, Key: r.key(), Shard: r.shard(), Instance: r.instance(), Handle: r.handle(),
		Exists: flags&recordExists != 0, Stopped: flags&recordStopped != 0, Costly: flags&recordCostly != 0, Touched: r.lastUse(),
		Replay:   [3]int32{int32(le.Uint32(r[28:])), int32(le.Uint32(r[32:])), int32(le.Uint32(r[36:]))},
		Sequence: journal.Sequence(le.Uint64(r[40:])), Window: string(window),
	}
	copy(d.Hash[:], r[48:])
	if flags&recordForgot != 0 {
		d.Forgot = int64(le.Uint64(r[recordHead+len(id)+len(window):]))
	}
	return d
}
