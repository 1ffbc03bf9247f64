package statefile

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash/crc32"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

const (
	version   = 1
	headBytes = 8 + 4 + 8 + 8 + 4
	// frameBytes is the size of the length and the checksum before a chunk's
	// pairs.
	frameBytes = 4 + 4
	tailBytes  = frameBytes + 8 + 8 + 32

	// ChunkBytes is the size at which a chunk is full.
	ChunkBytes = 256 << 10
	// MaxPairBytes bounds the combined size of a key and its value.
	MaxPairBytes = 2 << 20
	// maxChunkBytes bounds a chunk: a full chunk accepts no further pair.
	maxChunkBytes = ChunkBytes + MaxPairBytes + 2*binary.MaxVarintLen32
)

var (
	magic      = [7]byte{'h', 'o', 's', 't', 'd', 's', 'n'}
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
	le         = binary.LittleEndian
)

// Digest is the SHA-256 of a stream up to the digest in its trailer.
type Digest [sha256.Size]byte

// String returns the digest in lower-case hexadecimal.
func (d Digest) String() string { return hex.EncodeToString(d[:]) }

// Header describes the state in a stream.
type Header struct {
	Shard sharding.ShardID
	Index uint64        // the last raft index applied to it
	Term  sharding.Term // of the entry at Index
}

// Trailer marks the end of a complete stream.
type Trailer struct {
	Pairs, Bytes uint64 // Bytes of keys and values
	Digest       Digest
}

func appendHeader(b []byte, h Header) []byte {
	start := len(b)
	b = append(b, magic[:]...)
	b = append(b, version)
	b = le.AppendUint32(b, uint32(h.Shard))
	b = le.AppendUint64(b, h.Index)
	b = le.AppendUint64(b, uint64(h.Term))
	return le.AppendUint32(b, crc32.Checksum(b[start:], castagnoli))
}

func decodeHeader(b []byte) (h Header, err error) {
	switch {
	case [7]byte(b) != magic:
		return h, fmt.Errorf("%w: not a snapshot", journal.ErrDamaged)
	case crc32.Checksum(b[:headBytes-4], castagnoli) != le.Uint32(b[headBytes-4:]):
		return h, fmt.Errorf("%w: the snapshot's header fails its checksum", journal.ErrDamaged)
	case b[7] != version:
		return h, fmt.Errorf("%w: snapshot version %d", journal.ErrUnsupported, b[7])
	}
	return Header{
		Shard: sharding.ShardID(le.Uint32(b[8:])),
		Index: le.Uint64(b[12:]),
		Term:  sharding.Term(le.Uint64(b[20:])),
	}, nil
}

// seal writes the length and the checksum of the chunk that starts at start.
// The checksum covers the chunk's number too, so that a missing, moved or
// repeated chunk is detected.
func seal(b []byte, start int, number uint64) {
	le.PutUint32(b[start:], uint32(len(b)-start-frameBytes))
	le.PutUint32(b[start+4:], chunkSum(b[start+frameBytes:], number))
}

func chunkSum(chunk []byte, number uint64) uint32 {
	var n [8]byte
	le.PutUint64(n[:], number)
	return crc32.Update(crc32.Checksum(n[:], castagnoli), castagnoli, chunk)
}
