package journal

import (
	"encoding/binary"
	"fmt"

	"github.com/hostd/hostd/sharding"
)

// RowsChecksum is sharding.RowsChecksum.
type RowsDigest = sharding.RowsChecksum

// ReplicaChecksum is sharding.ReplicaChecksum.
type Proof = sharding.ReplicaChecksum

// AppendProofEntry appends a whole entry that carries a proof: index u64,
// digest [16].
func AppendProofEntry(dst []byte, fence sharding.Term, proposal uint64, p *Proof) []byte {
	dst = AppendEntryHeader(dst, EntryProof, fence, proposal)
	dst = binary.LittleEndian.AppendUint64(dst, p.Index)
	return append(dst, p.Checksum[:]...)
}

// DecodeProof reads the body of a proof entry.
func DecodeProof(body []byte) (p Proof, err error) {
	d := decoder{b: body}
	p.Index = d.u64()
	copy(p.Checksum[:], d.take(len(p.Checksum)))
	if d.bad || len(d.b) != 0 {
		return p, fmt.Errorf("%w: replica checksum with %d bytes", ErrDamaged, len(body))
	}
	return p, nil
}
