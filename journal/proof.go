package journal

import (
	"encoding/binary"
	"fmt"

	"github.com/hostd/hostd/sharding"
)

// RowsDigest is sharding.RowsDigest.
type RowsDigest = sharding.RowsDigest

// Proof is sharding.Proof.
type Proof = sharding.Proof

// AppendProofEntry appends a whole entry that carries a proof: index u64,
// digest [16].
func AppendProofEntry(dst []byte, fence sharding.Term, proposal uint64, p *Proof) []byte {
	dst = AppendEntryHeader(dst, EntryProof, fence, proposal)
	dst = binary.LittleEndian.AppendUint64(dst, p.Index)
	return append(dst, p.Digest[:]...)
}

// DecodeProof reads the body of a proof entry.
func DecodeProof(body []byte) (p Proof, err error) {
	d := decoder{b: body}
	p.Index = d.u64()
	copy(p.Digest[:], d.take(len(p.Digest)))
	if d.bad || len(d.b) != 0 {
		return p, fmt.Errorf("%w: a proof of %d bytes", ErrDamaged, len(body))
	}
	return p, nil
}
