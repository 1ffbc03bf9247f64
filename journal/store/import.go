package store

import (
	"encoding/binary"
	"fmt"

	"github.com/hostd/hostd/journal"
)

// Import is how far a shard's import has come.
type Import struct {
	ID       journal.ImportID
	Next     uint64 // the chunk that comes next
	Complete bool
}

const importBytes = 16 + 8 + 1

// AppendImport appends the body of an import's value: id [16], next chunk u64,
// state u8 (1 going on, 2 complete).
func AppendImport(dst []byte, i *Import) []byte {
	dst = append(dst, i.ID[:]...)
	dst = binary.LittleEndian.AppendUint64(dst, i.Next)
	if i.Complete {
		return append(dst, 2)
	}
	return append(dst, 1)
}

// DecodeImport is the inverse of AppendImport.
func DecodeImport(body []byte) (i Import, err error) {
	if len(body) != importBytes || body[24] < 1 || body[24] > 2 {
		return i, fmt.Errorf("%w: progress of an import of %d bytes", journal.ErrDamaged, len(body))
	}
	copy(i.ID[:], body)
	i.Next, i.Complete = binary.LittleEndian.Uint64(body[16:]), body[24] == 2
	return i, nil
}
