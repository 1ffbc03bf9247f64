package archive

import (
	"bufio"
	"bytes"
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

// Sink receives the content of an archive, in order. A slice is valid only
// during the call, except for the bytes of a module. If a method returns an
// error, reading stops and returns it.
type Sink interface {
	Cluster(id ID, cluster []byte) error
	Module(digest journal.Digest, wasm []byte) error
	Begin(s Shard) error
	Part(kind journal.PartKind, data []byte) error
	End(s Shard) error
}

// Read passes the content of a complete archive to the sink. It verifies all
// content before passing it on: each block's checksum, the order of blocks, and
// that each entity's records form a hash chain that matches its end part. The
// archive is known to be complete only when Read returns nil. If progress is
// not nil, it is called with the number of bytes read.
func Read(in io.Reader, sink Sink, progress func(bytes int64)) (Summary, error) {
	r := &reader{in: bufio.NewReaderSize(in, 256<<10), sink: sink, sum: sha256.New(), progress: progress}
	if err := r.header(); err != nil {
		return r.summary, err
	}
	for !r.ended {
		if err := r.next(); err != nil {
			return r.summary, err
		}
	}
	if _, err := r.in.ReadByte(); !errors.Is(err, io.EOF) {
		return r.summary, newDamage("unexpected bytes after the end block")
	}
	return r.summary, nil
}

// Verify checks an archive.
func Verify(in io.Reader, progress func(bytes int64)) (Summary, error) {
	return Read(in, discardSink{}, progress)
}

// discardSink discards everything it receives.
type discardSink struct{}

func (discardSink) Cluster(ID, []byte) error            { return nil }
func (discardSink) Module(journal.Digest, []byte) error { return nil }
func (discardSink) Begin(Shard) error                   { return nil }
func (discardSink) Part(journal.PartKind, []byte) error { return nil }
func (discardSink) End(Shard) error                     { return nil }

// reader reads an archive. The last block determines which blocks may follow:
//
//	header ─▶ cluster ─▶ module* ─▶ (shard ─▶ parts* ─▶ done)* ─▶ end
type reader struct {
	in       *bufio.Reader
	sink     Sink
	sum      hash.Hash
	number   uint64
	last     blockKind
	ended    bool
	progress func(int64)
	payload  []byte

	module  []byte // bytes received so far
	digest  journal.Digest
	size    uint64
	shard   Shard
	counts  partCounts
	entity  checker
	summary Summary
}

func (r *reader) read(b []byte) error {
	if _, err := io.ReadFull(r.in, b); err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return newDamage("the file ends after %d bytes", r.summary.Bytes)
		}
		return fmt.Errorf("read archive: %w", err)
	}
	r.summary.Bytes += int64(len(b))
	if r.progress != nil {
		r.progress(int64(len(b)))
	}
	return nil
}

func (r *reader) header() error {
	var head [headerBytes]byte
	if err := r.read(head[:]); err != nil {
		return err
	}
	end := headerBytes - 4
	switch {
	case string(head[:len(magic)]) != magic:
		return newDamage("the file does not start with the archive magic")
	case head[len(magic)] != version:
		return fmt.Errorf("%w: version %d", ErrUnsupported, head[len(magic)])
	case crc32.Checksum(head[:end], castagnoli) != binary.LittleEndian.Uint32(head[end:]):
		return newDamage("the header fails its checksum")
	}
	copy(r.summary.ID[:], head[len(magic)+1:])
	r.sum.Write(head[:])
	return nil
}

// next reads one block.
func (r *reader) next() error {
	var frame [blockBytes]byte
	if err := r.read(frame[:]); err != nil {
		return err
	}
	kind, length := blockKind(frame[0]), binary.LittleEndian.Uint32(frame[1:])
	if length > maxBlockBytes {
		return newDamage("block %d has %d bytes", r.number, length)
	}
	if cap(r.payload) < int(length) {
		r.payload = make([]byte, length)
	}
	payload := r.payload[:length]
	if err := r.read(payload); err != nil {
		return err
	}
	if blockSum(r.number, kind, payload) != binary.LittleEndian.Uint32(frame[5:]) {
		return newDamage("block %d fails its checksum", r.number)
	}
	if kind != blockEnd {
		r.sum.Write(frame[:])
		r.sum.Write(payload)
	}
	if err := r.block(kind, payload); err != nil {
		return err
	}
	r.number++
	r.last = kind
	return nil
}

// canFollow reports whether a block of the kind may come next.
func (r *reader) canFollow(kind blockKind) bool {
	between := r.last == blockCluster || r.last == blockModule && r.module == nil || r.last == blockDone
	switch kind {
	case blockCluster:
		return r.last == 0
	case blockModule:
		return r.last == blockCluster || r.last == blockModule
	case blockShard, blockEnd:
		return between
	case blockParts, blockDone:
		return r.last == blockShard || r.last == blockParts
	}
	return true
}

func (r *reader) block(kind blockKind, payload []byte) error {
	if !r.canFollow(kind) {
		return newDamage("block %d of kind %d after a block of kind %d", r.number, kind, r.last)
	}
	switch kind {
	case blockCluster:
		return r.sink.Cluster(r.summary.ID, payload)
	case blockModule:
		return r.piece(payload)
	case blockShard:
		return r.begin(payload)
	case blockParts:
		return r.parts(payload)
	case blockDone:
		return r.endShard(payload)
	case blockEnd:
		return r.end(payload)
	}
	return fmt.Errorf("%w: block of kind %d", ErrUnsupported, kind)
}

// piece appends the bytes of one block to the current module.
func (r *reader) piece(b []byte) error {
	if len(b) < 32+8+8 {
		return newDamage("a module block has %d bytes", len(b))
	}
	digest, size, at := journal.Digest(b[:32]), binary.LittleEndian.Uint64(b[32:]), binary.LittleEndian.Uint64(b[40:])
	if at == 0 && r.module == nil {
		r.digest, r.size, r.module = digest, size, []byte{}
	}
	if digest != r.digest || size != r.size || at != uint64(len(r.module)) || at+uint64(len(b)-48) > size {
		return newDamage("the blocks of a module are inconsistent")
	}
	r.module = append(r.module, b[48:]...)
	if uint64(len(r.module)) < size {
		return nil
	}
	if sha256.Sum256(r.module) != r.digest {
		return newDamage("a module does not match its digest")
	}
	wasm := r.module
	r.module = nil
	r.summary.Modules++
	return r.sink.Module(r.digest, wasm)
}

func (r *reader) begin(b []byte) error {
	if len(b) != 4+8+8+8 {
		return newDamage("a shard block has %d bytes", len(b))
	}
	r.shard = Shard{
		ID: sharding.ShardID(binary.LittleEndian.Uint32(b)), Index: binary.LittleEndian.Uint64(b[4:]),
		Term: sharding.Term(binary.LittleEndian.Uint64(b[12:])), Clock: int64(binary.LittleEndian.Uint64(b[20:])),
	}
	r.counts, r.entity = partCounts{}, checker{}
	return r.sink.Begin(r.shard)
}

func (r *reader) parts(b []byte) error {
	if len(b) == 0 {
		return newDamage("block %d is empty", r.number)
	}
	for len(b) > 0 {
		kind, data, rest, err := journal.NextPart(b)
		if err == nil {
			err = r.entity.check(kind, data)
		}
		switch {
		case errors.Is(err, journal.ErrUnsupported):
			return fmt.Errorf("%w: %w", ErrUnsupported, err)
		case err != nil:
			return fmt.Errorf("%w: block %d: %w", ErrDamaged, r.number, err)
		}
		b = rest
		r.counts.parts++
		r.summary.count(kind)
		if kind == journal.PartEnd {
			r.counts.entities++
		}
		if err := r.sink.Part(kind, data); err != nil {
			return err
		}
	}
	return nil
}

func (r *reader) endShard(b []byte) error {
	if r.entity.open || !bytes.Equal(b, appendCounts(nil, r.shard.ID, r.counts)) {
		return newDamage("shard %d does not match its end block", r.shard.ID)
	}
	r.summary.Shards++
	r.summary.Entities += r.counts.entities
	r.summary.Parts += r.counts.parts
	return r.sink.End(r.shard)
}

func (r *reader) end(b []byte) error {
	r.sum.Sum(r.summary.Digest[:0])
	if !bytes.Equal(b, appendEnd(nil, &r.summary)) {
		return newDamage("the archive does not match its end block")
	}
	r.ended = true
	return nil
}
