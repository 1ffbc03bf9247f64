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

// Sink takes what an archive holds, in order. The slices are lent, modules
// excepted. An error ends the reading and is returned.
type Sink interface {
	Cluster(id ID, cluster []byte) error
	Module(digest journal.Digest, wasm []byte) error
	Begin(s Shard) error
	Part(kind journal.PartKind, data []byte) error
	End(s Shard) error
}

// Read gives a whole archive to the sink, checking everything that comes before
// it is given: each block's checksum, the order of blocks, and that each
// entity's records chain to what its end says. That the archive is whole is
// known only when Read returns without an error. progress, where it is not nil,
// is told of bytes as they are read.
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
		return r.summary, damaged("bytes follow its end")
	}
	return r.summary, nil
}

// Verify reads an archive for what is wrong with it.
func Verify(in io.Reader, progress func(bytes int64)) (Summary, error) {
	return Read(in, nowhere{}, progress)
}

// nowhere takes what is read and keeps nothing of it.
type nowhere struct{}

func (nowhere) Cluster(ID, []byte) error            { return nil }
func (nowhere) Module(journal.Digest, []byte) error { return nil }
func (nowhere) Begin(Shard) error                   { return nil }
func (nowhere) Part(journal.PartKind, []byte) error { return nil }
func (nowhere) End(Shard) error                     { return nil }

// reader walks an archive: what may come next is said by the last block.
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

	module  []byte // as far as it has come
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
			return damaged("it ends after %d bytes", r.summary.Bytes)
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
		return damaged("it does not begin as one")
	case head[len(magic)] != version:
		return fmt.Errorf("%w: version %d", ErrUnsupported, head[len(magic)])
	case crc32.Checksum(head[:end], castagnoli) != binary.LittleEndian.Uint32(head[end:]):
		return damaged("its header has another checksum")
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
	if length > MaxBlockBytes {
		return damaged("block %d has %d bytes", r.number, length)
	}
	if cap(r.payload) < int(length) {
		r.payload = make([]byte, length)
	}
	payload := r.payload[:length]
	if err := r.read(payload); err != nil {
		return err
	}
	if blockSum(r.number, kind, payload) != binary.LittleEndian.Uint32(frame[5:]) {
		return damaged("block %d has another checksum", r.number)
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

// after reports that a block of the kind may come now.
func (r *reader) after(kind blockKind) bool {
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
	if !r.after(kind) {
		return damaged("block %d of kind %d follows one of kind %d", r.number, kind, r.last)
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
		return r.done(payload)
	case blockEnd:
		return r.end(payload)
	}
	return fmt.Errorf("%w: a block of kind %d", ErrUnsupported, kind)
}

// piece takes a piece of a module.
func (r *reader) piece(b []byte) error {
	if len(b) < 32+8+8 {
		return damaged("a module's block has %d bytes", len(b))
	}
	digest, size, at := journal.Digest(b[:32]), binary.LittleEndian.Uint64(b[32:]), binary.LittleEndian.Uint64(b[40:])
	if at == 0 && r.module == nil {
		r.digest, r.size, r.module = digest, size, []byte{}
	}
	if digest != r.digest || size != r.size || at != uint64(len(r.module)) || at+uint64(len(b)-48) > size {
		return damaged("a module's pieces do not fit")
	}
	r.module = append(r.module, b[48:]...)
	if uint64(len(r.module)) < size {
		return nil
	}
	if sha256.Sum256(r.module) != r.digest {
		return damaged("a module is not the one of its digest")
	}
	wasm := r.module
	r.module = nil
	r.summary.Modules++
	return r.sink.Module(r.digest, wasm)
}

func (r *reader) begin(b []byte) error {
	if len(b) != 4+8+8+8 {
		return damaged("a shard's block has %d bytes", len(b))
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
		return damaged("block %d is empty", r.number)
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

func (r *reader) done(b []byte) error {
	if r.entity.open || !bytes.Equal(b, appendCounts(nil, r.shard.ID, r.counts)) {
		return damaged("shard %d has other parts than its end says", r.shard.ID)
	}
	r.summary.Shards++
	r.summary.Entities += r.counts.entities
	r.summary.Parts += r.counts.parts
	return r.sink.End(r.shard)
}

func (r *reader) end(b []byte) error {
	r.sum.Sum(r.summary.Digest[:0])
	if !bytes.Equal(b, appendEnd(nil, &r.summary)) {
		return damaged("it is not what its end says")
	}
	r.ended = true
	return nil
}
