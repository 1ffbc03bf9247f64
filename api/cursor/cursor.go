// Package cursor encodes the position of a subscriber: a position in the log of
// each shard. FORMAT.md describes the bytes. Servers check cursors, and clients
// join the partial cursors of a stream. To all other programs they are opaque.
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

// ErrMalformed means that the text is not a complete cursor of a known version.
var ErrMalformed = errors.New("the cursor is damaged or not one of this service")

// Limits of what Parse accepts.
const (
	MaxShards = 4096
	MaxText   = 131072 // bytes of a cursor as text
)

// Versions of the encoding. The second version adds the histories of places.
const (
	version1 = 1
	version2 = 2
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Position is the place of the next event to deliver. It is in log entry Index
// (starting at 1), in record Ordinal of that entry (starting at 0), after the
// first Events events of that record. The zero Position is the beginning.
type Position struct {
	Index   uint64
	Ordinal uint32
	Events  uint32
	// History is the fingerprint of the last record with events before the
	// position, or of the record that contains the position. If a log has a
	// different record there, the position does not belong to that log. 0 means
	// unknown.
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

// Cursor is the set of positions of one subscription. A shard without a place
// is at the beginning.
type Cursor struct {
	// Mark identifies the subscription: subscriptions to a different cluster, type
	// or tag have different marks.
	Mark uint32
	// Shards is the number of shards of the cluster.
	Shards uint32
	// Places are ordered by shard. Each shard occurs at most once, and none is
	// at the beginning.
	Places []Place
}

// Text encodes the cursor, in version 1, which earlier releases read, if no
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

// Parse decodes the result of Text, or fails with ErrMalformed.
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

// Join adds the places of a partial cursor that follows c.
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

// decoder reads numbers from b. After the first malformed number, bad is set.
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
