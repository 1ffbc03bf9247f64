package peer

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"time"

	"connectrpc.com/connect"

	peerv1 "github.com/hostd/hostd/api/gen/hostd/peer/v1"
	"github.com/hostd/hostd/sharding"
)

// GetBlob writes a module's bytes from another node to w and returns their
// number. After an error, w may have received only a part, or bytes with a
// wrong digest.
func (p *Peers) GetBlob(ctx context.Context, node sharding.NodeID, module Digest, w io.Writer) (int64, error) {
	q, err := p.peerOf(node)
	if err != nil {
		return 0, err
	}
	ctx, watch := watchProgress(ctx)
	defer watch.stop()
	stream, err := q.bulk.GetBlob(ctx, connect.NewRequest(&peerv1.GetBlobRequest{Digest: module[:]}))
	if err != nil {
		return 0, transferError(ctx, node, err)
	}
	defer stream.Close()
	sum, written, size := sha256.New(), int64(0), int64(-1)
	for stream.Receive() {
		watch.advance()
		m := stream.Msg()
		if size < 0 {
			if m.GetSize() > MaxBlobBytes {
				return 0, fmt.Errorf("%w: the module on node %s has %d bytes", ErrTooLarge, node, m.GetSize())
			}
			size = int64(m.GetSize())
		}
		if written += int64(len(m.GetChunk())); written > size {
			return written, fmt.Errorf("%w: node %s sends more bytes of a module than it announced", ErrTooLarge, node)
		}
		sum.Write(m.GetChunk())
		if _, err := w.Write(m.GetChunk()); err != nil {
			return written, fmt.Errorf("store a module: %w", err)
		}
	}
	if err := stream.Err(); err != nil {
		return written, transferError(ctx, node, err)
	}
	return written, checkBlob(sum, module, written, size)
}

func checkBlob(sum hash.Hash, module Digest, got, size int64) error {
	if got != size || !bytes.Equal(sum.Sum(nil), module[:]) {
		return fmt.Errorf("%w: the %d received bytes do not match the announced module of %d bytes", ErrRefused, got, size)
	}
	return nil
}

// GetBlob serves a module's bytes.
func (s *controlService) GetBlob(ctx context.Context, r *connect.Request[peerv1.GetBlobRequest], stream *connect.ServerStream[peerv1.GetBlobResponse]) error {
	p, in := s.peers, servedOf(ctx)
	module, err := toDigest(r.Msg.GetDigest())
	if err != nil {
		return p.encodeError(err)
	}
	if err := p.enter(in); err != nil {
		return p.encodeError(err)
	}
	defer p.leave(in)
	blob, size, err := p.opts.Control.OpenBlob(ctx, module)
	if err != nil {
		return p.encodeError(err)
	}
	defer blob.Close()
	first := uint64(size)
	err = sendChunks(blob, func(chunk []byte, _ bool) error {
		if in.ended.Load() {
			return ErrUnavailable
		}
		in.deadline(time.Now().Add(progressTime))
		err := stream.Send(&peerv1.GetBlobResponse{Chunk: chunk, Size: first})
		first = 0
		return err
	})
	if err != nil {
		return p.encodeError(err)
	}
	return nil
}

// PutBlob stores a module's bytes on a node and returns when they are durable
// there.
func (p *Peers) PutBlob(ctx context.Context, node sharding.NodeID, module Digest, size int64, blob io.Reader) error {
	q, err := p.peerOf(node)
	if err != nil {
		return err
	}
	if size > MaxBlobBytes {
		return fmt.Errorf("%w: the module has %d bytes", ErrTooLarge, size)
	}
	ctx, w := watchProgress(ctx)
	defer w.stop()
	stream := q.bulk.PutBlob(ctx)
	first := true
	err = sendChunks(blob, func(chunk []byte, _ bool) error {
		defer w.advance()
		m := &peerv1.PutBlobRequest{Chunk: chunk}
		if first {
			m.Digest, m.Size, first = module[:], uint64(size), false
		}
		return stream.Send(m)
	})
	if err != nil && !errors.Is(err, io.EOF) {
		w.cancel(err)
		stream.CloseAndReceive()
		return fmt.Errorf("send a module to node %s: %w", node, err)
	}
	w.advance()
	_, err = stream.CloseAndReceive()
	return transferError(ctx, node, err)
}

// PutBlob serves a module that another node stores here.
func (s *controlService) PutBlob(ctx context.Context, stream *connect.ClientStream[peerv1.PutBlobRequest]) (*connect.Response[peerv1.PutBlobResponse], error) {
	p, in := s.peers, servedOf(ctx)
	if err := p.enter(in); err != nil {
		return nil, p.encodeError(err)
	}
	defer p.leave(in)
	body := &chunks{in: in, next: func() ([]byte, bool, error) {
		if !stream.Receive() {
			return nil, true, stream.Err() // the receiver checks by the digest that the module is complete
		}
		return stream.Msg().GetChunk(), false, nil
	}}
	if err := body.fill(); err != nil {
		return nil, p.encodeError(err)
	}
	module, err := toDigest(stream.Msg().GetDigest())
	size := stream.Msg().GetSize()
	switch {
	case err != nil:
		return nil, p.encodeError(err)
	case size > MaxBlobBytes:
		return nil, p.encodeError(fmt.Errorf("%w: the module has %d bytes", ErrTooLarge, size))
	}
	blob := &blobReader{from: body, module: module, size: int64(size), sum: sha256.New()}
	if err := p.opts.Control.PutBlob(ctx, module, int64(size), blob); err != nil {
		return nil, p.encodeError(err)
	}
	if !blob.whole {
		return nil, p.encodeError(fmt.Errorf("%w: the receiver did not read the whole module", ErrUnknownOutcome))
	}
	return connect.NewResponse(&peerv1.PutBlobResponse{}), nil
}

// blobReader returns io.EOF only after bytes of the announced size and digest.
type blobReader struct {
	from   io.Reader
	module Digest
	size   int64
	got    int64
	sum    hash.Hash
	whole  bool
}

// Read implements io.Reader.
func (b *blobReader) Read(p []byte) (int, error) {
	n, err := b.from.Read(p)
	b.sum.Write(p[:n])
	if b.got += int64(n); b.got > b.size {
		return 0, fmt.Errorf("%w: received more bytes than announced", ErrTooLarge)
	}
	if errors.Is(err, io.EOF) {
		if err := checkBlob(b.sum, b.module, b.got, b.size); err != nil {
			return n, err
		}
		b.whole = true
	}
	return n, err
}
