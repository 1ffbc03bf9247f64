package wal

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"strconv"
	"strings"
)

// FORMAT.md describes these bytes, and testdata/v1 pins them.
const (
	formatVersion     = 1
	headerBytes       = 4096
	recordHeaderBytes = 16
	alignment         = 8
	epochKind         = 0
	epochRecordBytes  = recordHeaderBytes + 8
	segmentMagic      = "hostdwal"
	headerCRCOffset   = headerBytes - 4
	segmentSuffix     = ".wal"
	freeSuffix        = ".free"
	tempSuffix        = ".tmp"
)

var (
	castagnoli   = crc32.MakeTable(crc32.Castagnoli)
	littleEndian = binary.LittleEndian
)

// LogID identifies a log. Files with a different id belong to a different log.
type LogID [16]byte

// String returns the id in hexadecimal.
func (id LogID) String() string { return hex.EncodeToString(id[:]) }

func segmentName(number uint64) string { return fmt.Sprintf("%016x%s", number, segmentSuffix) }
func freeName(number uint64) string    { return fmt.Sprintf("%016x%s", number, freeSuffix) }

// parseName returns the number in a name made by segmentName or freeName.
func parseName(name, suffix string) (number uint64, ok bool) {
	digits, ok := strings.CutSuffix(name, suffix)
	if !ok || len(digits) != 16 || strings.ToLower(digits) != digits {
		return 0, false
	}
	number, err := strconv.ParseUint(digits, 16, 64)
	return number, err == nil
}

// segmentHeader is the first page of a segment.
type segmentHeader struct {
	id     LogID
	number uint64
	epoch  uint64
	size   int64
	// previousEnd and previousEpoch are the end of the previous segment and its
	// last epoch. Both are 0 in the first segment of a log.
	previousEnd   int64
	previousEpoch uint64
}

// encode writes the page to b, which must be headerBytes of zeros.
func (h segmentHeader) encode(b []byte) {
	copy(b, segmentMagic)
	littleEndian.PutUint32(b[8:], formatVersion)
	littleEndian.PutUint32(b[12:], headerBytes)
	copy(b[16:32], h.id[:])
	littleEndian.PutUint64(b[32:], h.number)
	littleEndian.PutUint64(b[40:], h.epoch)
	littleEndian.PutUint64(b[48:], uint64(h.size))
	littleEndian.PutUint64(b[56:], uint64(h.previousEnd))
	littleEndian.PutUint64(b[64:], h.previousEpoch)
	littleEndian.PutUint32(b[headerCRCOffset:], crc32.Checksum(b[:headerCRCOffset], castagnoli))
}

// decodeSegmentHeader decodes a page of headerBytes. The reason is empty if the
// page is valid.
func decodeSegmentHeader(b []byte) (h segmentHeader, reason string) {
	if string(b[:len(segmentMagic)]) != segmentMagic {
		return h, "not a segment header"
	}
	if crc32.Checksum(b[:headerCRCOffset], castagnoli) != littleEndian.Uint32(b[headerCRCOffset:]) {
		return h, "segment header fails its checksum"
	}
	if v := littleEndian.Uint32(b[8:]); v != formatVersion {
		return h, fmt.Sprintf("segment has format version %d, this release reads %d", v, formatVersion)
	}
	copy(h.id[:], b[16:32])
	h.number = littleEndian.Uint64(b[32:])
	h.epoch = littleEndian.Uint64(b[40:])
	h.size = int64(littleEndian.Uint64(b[48:]))
	h.previousEnd = int64(littleEndian.Uint64(b[56:]))
	h.previousEpoch = littleEndian.Uint64(b[64:])
	return h, ""
}

// coder encodes and verifies the records of one epoch of a segment. Its
// checksums are seeded with the log id, the segment, the epoch and the offset,
// so that older bytes in the same file fail verification.
type coder struct {
	epoch uint64
	seed  uint32
	// scratch avoids an allocation per record, because slices passed to package
	// crc32 escape.
	scratch [8]byte
}

func newCoder(id LogID, number, epoch uint64) coder {
	var b [32]byte
	copy(b[:], id[:])
	littleEndian.PutUint64(b[16:], number)
	littleEndian.PutUint64(b[24:], epoch)
	return coder{epoch: epoch, seed: crc32.Checksum(b[:], castagnoli)}
}

// recordBytes returns the encoded size of a record with a payload of n bytes.
func recordBytes(n int64) int64 {
	return recordHeaderBytes + (n+alignment-1)&^(alignment-1)
}

// appendRecord appends to dst the record for offset, and returns its checksum.
// synced is the offset up to which the segment is known to be durable.
func (c *coder) appendRecord(dst []byte, offset, synced int64, kind byte, payload ...[]byte) ([]byte, uint32) {
	start := len(dst)
	dst = append(dst, make([]byte, recordHeaderBytes)...)
	for _, p := range payload {
		dst = append(dst, p...)
	}
	length := len(dst) - start - recordHeaderBytes
	for len(dst)%alignment != start%alignment {
		dst = append(dst, 0)
	}
	b := dst[start:]
	b[6] = kind
	littleEndian.PutUint32(b[8:], uint32(length))
	littleEndian.PutUint32(b[12:], uint32(synced/alignment))
	state := c.headerState(b, offset)
	littleEndian.PutUint16(b[4:], foldChecksum(state))
	crc := crc32.Update(state, castagnoli, b[recordHeaderBytes:])
	littleEndian.PutUint32(b, crc)
	return dst, crc
}

// headerState returns the checksum of a record's seed, offset, kind, flags,
// length and synced field.
func (c *coder) headerState(b []byte, offset int64) uint32 {
	littleEndian.PutUint64(c.scratch[:], uint64(offset))
	state := crc32.Update(c.seed, castagnoli, c.scratch[:])
	return crc32.Update(state, castagnoli, b[6:recordHeaderBytes])
}

func foldChecksum(state uint32) uint16 { return uint16(state) ^ uint16(state>>16) }

// recordHeader is a verified record header.
type recordHeader struct {
	crc    uint32
	state  uint32
	kind   byte
	length int64
	synced int64
}

// bytes returns the encoded size of the record.
func (h recordHeader) bytes() int64 { return recordBytes(h.length) }

// decodeHeader decodes the record header b at offset. The records of the
// segment end at limit.
func (c *coder) decodeHeader(b []byte, offset, limit int64) (h recordHeader, ok bool) {
	h = recordHeader{
		crc:    littleEndian.Uint32(b),
		kind:   b[6],
		length: int64(littleEndian.Uint32(b[8:])),
		synced: int64(littleEndian.Uint32(b[12:])) * alignment,
	}
	if b[7] != 0 || h.bytes() > limit-offset {
		return h, false
	}
	h.state = c.headerState(b, offset)
	return h, foldChecksum(h.state) == littleEndian.Uint16(b[4:])
}

// isValid verifies the payload and its padding.
func (h recordHeader) isValid(body []byte) bool {
	return crc32.Update(h.state, castagnoli, body) == h.crc
}
