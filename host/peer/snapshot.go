package peer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"connectrpc.com/connect"

	peerv1 "github.com/hostd/hostd/api/gen/hostd/peer/v1"
	"github.com/hostd/hostd/sharding"
)

// progressTime is how long a transfer of a snapshot or a module may make no
// progress.
const progressTime = 10 * time.Second

// errStalled: the transfer made no progress for progressTime.
var errStalled = fmt.Errorf("%w: the snapshot transfer makes no progress", ErrUnavailable)

// progress ends a transfer that makes no progress.
type progress struct {
	cancel context.CancelCauseFunc
	timer  *time.Timer
}

// watchProgress returns a context that ends when moved is not called for
// progressTime. stop must be called.
func watchProgress(ctx context.Context) (watched context.Context, w *progress) {
	w = &progress{}
	watched, w.cancel = context.WithCancelCause(ctx)
	w.timer = time.AfterFunc(progressTime, func() { w.cancel(errStalled) })
	return watched, w
}

func (w *progress) advance() { w.timer.Reset(progressTime) }

func (w *progress) stop() {
	w.timer.Stop()
	w.cancel(nil)
}

// SendSnapshot sends body, with a header of at most 64 KiB, and returns the
// node's answer when it has taken the snapshot. The answer of a node of an
// earlier release is empty. A transfer may last as long as bytes move; the
// receiver controls the pace. A node accepts a few snapshots concurrently and
// answers ErrUnavailable to more.
func (p *Peers) SendSnapshot(ctx context.Context, to sharding.NodeID, header []byte, body io.Reader) (answer []byte, err error) {
	q, err := p.peerOf(to)
	if err != nil {
		return nil, err
	}
	if len(header) > maxHeadBytes {
		return nil, fmt.Errorf("%w: a snapshot header has %d bytes", ErrTooLarge, len(header))
	}
	ctx, w := watchProgress(ctx)
	defer w.stop()
	stream := q.bulk.SendSnapshot(ctx)
	first := &peerv1.SendSnapshotRequest{Header: header}
	err = sendChunks(body, func(chunk []byte, last bool) error {
		defer w.advance()
		m := &peerv1.SendSnapshotRequest{Chunk: chunk, Last: last}
		if first != nil {
			m.Header, first = first.Header, nil
		}
		return stream.Send(m)
	})
	if err != nil && !errors.Is(err, io.EOF) {
		w.cancel(err) // otherwise the receiver would take the snapshot for complete
		stream.CloseAndReceive()
		return nil, fmt.Errorf("send a snapshot to node %s: %w", to, err)
	}
	w.advance()
	response, err := stream.CloseAndReceive()
	if err != nil {
		return nil, transferError(ctx, to, err)
	}
	return response.Msg.GetAnswer(), nil
}

// transferError returns the error of a transfer. If this side has ended the
// transfer, its reason takes precedence.
func transferError(ctx context.Context, node sharding.NodeID, err error) error {
	if err != nil && errors.Is(context.Cause(ctx), errStalled) {
		return fmt.Errorf("call node %s: %w", node, errStalled)
	}
	return decodeError(node, err)
}

// sendChunks reads r to its end and calls send with chunks of at most
// maxChunkBytes, at least once. send may keep the chunk. If send returns
// io.EOF, the receiver has ended the stream and its answer has the reason.
func sendChunks(r io.Reader, send func(chunk []byte, last bool) error) error {
	for {
		chunk := make([]byte, maxChunkBytes)
		n, err := io.ReadFull(r, chunk)
		last := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
		if err != nil && !last {
			return fmt.Errorf("read the snapshot to send: %w", err)
		}
		if err := send(chunk[:n], last); err != nil {
			return err
		}
		if last {
			return nil
		}
	}
}

// SendSnapshot serves a snapshot that another node sends.
func (s *controlService) SendSnapshot(ctx context.Context, stream *connect.ClientStream[peerv1.SendSnapshotRequest]) (*connect.Response[peerv1.SendSnapshotResponse], error) {
	p, in := s.peers, servedOf(ctx)
	select {
	case p.snapshots <- struct{}{}:
		defer func() { <-p.snapshots }()
	default:
		return nil, p.encodeError(fmt.Errorf("%w: node %s already receives %d snapshots", ErrUnavailable, p.opts.Self, cap(p.snapshots)))
	}
	if err := p.enter(in); err != nil {
		return nil, p.encodeError(err)
	}
	defer p.leave(in)
	body := &chunks{in: in, next: func() ([]byte, bool, error) {
		if !stream.Receive() {
			return nil, false, cmp.Or(stream.Err(), io.ErrUnexpectedEOF)
		}
		return stream.Msg().GetChunk(), stream.Msg().GetLast(), nil
	}}
	if err := body.fill(); err != nil {
		return nil, p.encodeError(err)
	}
	header := stream.Msg().GetHeader()
	if len(header) > maxHeadBytes {
		return nil, p.encodeError(fmt.Errorf("%w: a snapshot header has %d bytes", ErrTooLarge, len(header)))
	}
	answer, err := p.opts.Control.ReceiveSnapshot(ctx, in.peer.id, header, body)
	if err != nil {
		return nil, p.encodeError(err)
	}
	if !body.isComplete() {
		return nil, p.encodeError(fmt.Errorf("%w: the receiver did not read the whole snapshot", ErrUnknownOutcome))
	}
	return connect.NewResponse(&peerv1.SendSnapshotResponse{Answer: answer}), nil
}

// chunks reads the messages of a transfer as bytes. It returns io.EOF only
// after the last message; a truncated transfer fails.
type chunks struct {
	in    *served
	next  func() (chunk []byte, last bool, err error)
	chunk []byte
	last  bool
	err   error
}

// Read implements io.Reader.
func (c *chunks) Read(p []byte) (int, error) {
	for len(c.chunk) == 0 {
		if c.last {
			return 0, io.EOF
		}
		if err := c.fill(); err != nil {
			return 0, err
		}
	}
	n := copy(p, c.chunk)
	c.chunk = c.chunk[n:]
	return n, nil
}

// fill reads the next message, which must arrive within progressTime.
func (c *chunks) fill() error {
	if c.err != nil {
		return c.err
	}
	if c.in.ended.Load() {
		return errClosed
	}
	c.in.deadline(time.Now().Add(progressTime))
	if c.in.ended.Load() {
		c.in.abort()
	}
	c.chunk, c.last, c.err = c.next()
	c.in.deadline(time.Now().Add(maxCallTime)) // time for processing and answering
	return c.err
}

// isComplete reports whether everything was read.
func (c *chunks) isComplete() bool {
	return c.err == nil && c.last && len(c.chunk) == 0
}
