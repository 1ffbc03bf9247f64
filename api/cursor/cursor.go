// Package cursor encodes where a subscriber stands: a position in the log of
// each shard. FORMAT.md has the bytes. Servers check cursors, clients join the
// partial ones of a stream; to everybody else they are opaque.
//
// It never does I/O and starts no goroutine.
package cursor

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math"
	"slices"
)

// ErrMalformed: the text is not a whole cursor of this version.
var ErrMalformed = errors.New("the cursor is damaged or not one of this service")

// Bounds of what Parse accepts.
const (
	MaxShards = 4096
	MaxText   = 131072 // bytes of a cursor as text
)

// Versions of the bytes: the second has the histories of places.
const (
	version1 = 1
	version2 = 2
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Position is the place of the event that is wanted next: in the log entry
// Index, from 1, in its record Ordinal, from 0, after that record's first
// Events events. The zero Position is the beginning.
type Position struct {
	Index   uint64
	Ordinal uint32
	Events  uint32
	// History is the fingerprint of the last record with events before the
	// position, or of the record that it is in. A log that has another record
	// there is not the one that the position is of. 0: unknown.
	History uint32
}

// Less reports whether p is before q.
func (p Position) Less(q Position) bool {
	switch {
	case p.Index != q.Index:
		return p.Index < q.Index
	case p.Ordinal != q.Ordinal:
		return p.Ordinal < q.Ordinal
	}
	return p.Events < q.Events
}

// Place is a shard's position.
type Place struct {
	Shard uint32
	Position
}

// Cursor is a set of positions of one subscription. What it has no place for
// stands at the beginning.
type Cursor struct {
	// Mark tells the subscription: of another cluster, type or tag it differs.
	Mark uint32
	// Shards is the number of shards of the cluster.
	Shards uint32
	// Places are in the order of shards, each once, none at the beginning.
	Places []Place
}

// Text encodes the cursor: in version 1, which earlier releases read, if no
// history is known.
func (c *Cursor) Text() string {
	version := byte(version1)
	for _, p := range c.Places {
		if p.History != 0 {
			version = version2
		}
	}
	b := make([]byte, 0, 16+12*len(c.Places))
	b = append(b, version)
	b = binary.LittleEndian.AppendUint32(b, c.Mark)
	b = binary.AppendUvarint(b, uint64(c.Shards))
	b = binary.AppendUvarint(b, uint64(len(c.Places)))
	last := uint32(0)
	for _, p := range c.Places {
		b = binary.AppendUvarint(b, uint64(p.Shard-last))
		b = binary.AppendUvarint(b, p.Index)
		b = binary.AppendUvarint(b, uint64(p.Ordinal))
		b = binary.AppendUvarint(b, uint64(p.Events))
		if version == version2 {
			b = binary.LittleEndian.AppendUint32(b, p.History)
		}
		last = p.Shard
	}
	b = binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
	return base64.RawURLEncoding.EncodeToString(b)
}

// Parse decodes what Text encoded, or fails with ErrMalformed.
func Parse(text string) (c Cursor, err error) {
	if len(text) > MaxText {
		return c, ErrMalformed
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(b) < 1+4+1+1+4 || b[0] != version1 && b[0] != version2 {
		return c, ErrMalformed
	}
	body, sum := b[:len(b)-4], binary.LittleEndian.Uint32(b[len(b)-4:])
	if crc32.Checksum(body, castagnoli) != sum {
		return c, ErrMalformed
	}
	d := decoder{b: body[5:]}
	c.Mark = binary.LittleEndian.Uint32(body[1:])
	c.Shards = uint32(d.number(MaxShards))
	n := d.number(uint64(c.Shards))
	last := uint32(0)
	for range n {
		p := Place{Shard: last + uint32(d.number(uint64(c.Shards-last)))}
		p.Index = d.number(math.MaxInt64)
		p.Ordinal = uint32(d.number(math.MaxUint32))
		p.Events = uint32(d.number(math.MaxUint16))
		if b[0] == version2 {
			p.History = d.u32()
		}
		if d.bad || p.Shard == last || p.Index == 0 {
			return Cursor{}, ErrMalformed
		}
		c.Places = append(c.Places, p)
		last = p.Shard
	}
	if d.bad || len(d.b) > 0 {
		return Cursor{}, ErrMalformed
	}
	return c, nil
}

// Join takes over the places of a partial cursor that follows c.
func (c *Cursor) Join(partial *Cursor) {
	c.Mark, c.Shards = partial.Mark, partial.Shards
	for _, p := range partial.Places {
		i, found := slices.BinarySearchFunc(c.Places, p.Shard, func(p Place, shard uint32) int { return int(p.Shard) - int(shard) })
		if found {
			c.Places[i] = p
		} else {
			c.Places = slices.Insert(c.Places, i, p)
		}
	}
}

// decoder takes numbers off b; after the first that does not fit it is bad.
type decoder struct {
	b   []byte
	bad bool
}

func (d *decoder) u32() uint32 {
	if len(d.b) < 4 || d.bad {
		d.bad, d.b = true, nil
		return 0
	}
	v := binary.LittleEndian.Uint32(d.b)
	d.b = d.b[4:]
	return v
}

func (d *decoder) number(most uint64) uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 || v > most || d.bad {
		d.bad, d.b = true, nil
		return 0
	}
	d.b = d.b[n:]
	return v
}
