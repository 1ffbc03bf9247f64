package journal

import "encoding/binary"

// PeekExpected returns a record's Expected without reading anything after it or
// checking the checksum. It returns false if b does not start with a record. b
// may continue after the record.
func PeekExpected(b []byte) (Sequence, bool) {
	const names = 8 + 2 // framing, version and flags
	if len(b) < names+1 || b[8] != recordVersion {
		return 0, false
	}
	at := names + 1 + int(b[names])
	if len(b) < at+2 {
		return 0, false
	}
	at += 2 + int(binary.LittleEndian.Uint16(b[at:])) + 16 // after the id, term and time
	if len(b) < at+8 {
		return 0, false
	}
	return Sequence(binary.LittleEndian.Uint64(b[at:])), true
}
