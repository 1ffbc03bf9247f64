package archive

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// Writer writes an archive. Its methods are called in the order of the file.
// After an error the writer must not be used, and the output is not an archive.
type Writer struct {
	w       io.Writer
	sum     hash.Hash
	number  uint64
	out     []byte
	buf     []byte // parts of the shard, not written yet
	shard   Shard
	open    bool
	counts  partCounts
	summary Summary
}

// partCounts counts the parts of a shard.
type partCounts struct{ entities, parts uint64 }

// NewWriter starts an archive with the cluster's metadata: JSON, at most
// maxBlockBytes.
func NewWriter(w io.Writer, id ID, cluster []byte) (*Writer, error) {
	a := &Writer{w: w, sum: sha256.New(), summary: Summary{ID: id}}
	head := append([]byte(magic), version)
	head = append(head, id[:]...)
	head = binary.LittleEndian.AppendUint32(head, crc32.Checksum(head, castagnoli))
	if err := a.write(head); err != nil {
		return nil, err
	}
	return a, a.block(blockCluster, cluster)
}

func (a *Writer) write(b []byte) error {
	a.sum.Write(b)
	a.summary.Bytes += int64(len(b))
	if _, err := a.w.Write(b); err != nil {
		return fmt.Errorf("write archive: %w", err)
	}
	return nil
}

// block writes one framed block.
func (a *Writer) block(kind blockKind, payload []byte) error {
	if len(payload) > maxBlockBytes {
		return fmt.Errorf("write archive: block of %d bytes exceeds the limit", len(payload))
	}
	a.out = append(a.out[:0], byte(kind))
	a.out = binary.LittleEndian.AppendUint32(a.out, uint32(len(payload)))
	a.out = binary.LittleEndian.AppendUint32(a.out, blockSum(a.number, kind, payload))
	a.out = append(a.out, payload...)
	a.number++
	return a.write(a.out)
}

// blockSum returns the checksum of a block's number, kind and payload.
func blockSum(number uint64, kind blockKind, payload []byte) uint32 {
	var head [9]byte
	binary.LittleEndian.PutUint64(head[:], number)
	head[8] = byte(kind)
	return crc32.Update(crc32.Checksum(head[:], castagnoli), castagnoli, payload)
}

// Module writes a module; digest is the SHA-256 of its bytes. Modules come
// before the first shard.
func (a *Writer) Module(digest journal.Digest, wasm []byte) error {
	for at := 0; ; {
		n := min(len(wasm)-at, moduleBytes)
		b := append([]byte{}, digest[:]...)
		b = binary.LittleEndian.AppendUint64(b, uint64(len(wasm)))
		b = binary.LittleEndian.AppendUint64(b, uint64(at))
		if err := a.block(blockModule, append(b, wasm[at:at+n]...)); err != nil {
			return err
		}
		if at += n; at == len(wasm) {
			a.summary.Modules++
			return nil
		}
	}
}

// Begin starts a shard. The previous shard must have ended.
func (a *Writer) Begin(s Shard) error {
	a.shard, a.open, a.counts = s, true, partCounts{}
	b := binary.LittleEndian.AppendUint32(nil, uint32(s.ID))
	b = binary.LittleEndian.AppendUint64(b, s.Index)
	b = binary.LittleEndian.AppendUint64(b, uint64(s.Term))
	b = binary.LittleEndian.AppendUint64(b, uint64(s.Clock))
	return a.block(blockShard, b)
}

// Part writes a part of the current shard. It does not retain data.
func (a *Writer) Part(kind journal.PartKind, data []byte) error {
	if len(a.buf) > 0 && len(a.buf)+len(data)+journal.PartHeaderBytes > fullBytes {
		if err := a.flush(); err != nil {
			return err
		}
	}
	a.buf = journal.AppendPart(a.buf, kind, data)
	a.counts.parts++
	a.summary.count(kind)
	if kind == journal.PartEnd {
		a.counts.entities++
	}
	return nil
}

func (a *Writer) flush() error {
	if len(a.buf) == 0 {
		return nil
	}
	err := a.block(blockParts, a.buf)
	a.buf = a.buf[:0]
	return err
}

// End ends the current shard.
func (a *Writer) End() error {
	if !a.open {
		return errors.New("write archive: no shard was started")
	}
	a.open = false
	if err := a.flush(); err != nil {
		return err
	}
	a.summary.Shards++
	a.summary.Entities += a.counts.entities
	a.summary.Parts += a.counts.parts
	return a.block(blockDone, appendCounts(nil, a.shard.ID, a.counts))
}

func appendCounts(dst []byte, id sharding.ShardID, c partCounts) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, uint32(id))
	dst = binary.LittleEndian.AppendUint64(dst, c.entities)
	return binary.LittleEndian.AppendUint64(dst, c.parts)
}

// Close writes the end block, without which the output is not an archive. It
// does not close the underlying writer.
func (a *Writer) Close() (Summary, error) {
	if a.open {
		return a.summary, errors.New("write archive: the last shard was not ended")
	}
	a.sum.Sum(a.summary.Digest[:0])
	return a.summary, a.block(blockEnd, appendEnd(nil, &a.summary))
}

// count counts a part by its kind.
func (s *Summary) count(kind journal.PartKind) {
	switch kind {
	case journal.PartTimer:
		s.Timers++
	case journal.PartMessage:
		s.Messages++
	case journal.PartDeadLetter:
		s.DeadLetters++
	}
}

// appendEnd appends the payload of the end block.
func appendEnd(dst []byte, s *Summary) []byte {
	for _, n := range [...]uint64{s.Modules, s.Shards, s.Entities, s.Parts} {
		dst = binary.LittleEndian.AppendUint64(dst, n)
	}
	return append(dst, s.Digest[:]...)
}
