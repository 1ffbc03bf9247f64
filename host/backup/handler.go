package backup

import (
	"context"
	"errors"
	"io"
	"log/slog"

	"connectrpc.com/connect"

	journalv1 "github.com/hostd/hostd/api/gen/hostd/journal/v1"
	"github.com/hostd/hostd/api/gen/hostd/journal/v1/journalv1connect"
	"github.com/hostd/hostd/host/edge/admission"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/host/status"
)

// Backups exports the entities of the cluster and imports them; see Service.
type Backups interface {
	Export(ctx context.Context, w io.Writer) error
	Import(ctx context.Context, r io.Reader, withBindings bool) (Imported, error)
}

// journalHandler implements the JournalService. It allows one export or import
// at a time.
type journalHandler struct {
	backups Backups
	guard   *admission.Streams
	slot    chan struct{}
	log     *slog.Logger
}

// NewHandler makes the JournalService of a node. If b is nil, its calls are
// unimplemented.
func NewHandler(b Backups, streams *admission.Streams, log *slog.Logger) journalv1connect.JournalServiceHandler {
	if b == nil {
		return journalv1connect.UnimplementedJournalServiceHandler{}
	}
	return &journalHandler{backups: b, guard: streams, slot: make(chan struct{}, 1), log: log}
}

// enter admits an export or import. The returned context ends when the node stops; leave
// must be called.
func (s *journalHandler) enter(ctx context.Context) (_ context.Context, g *admission.Stream, leave func(), err error) {
	select {
	case s.slot <- struct{}{}:
	default:
		return nil, nil, nil, request.ErrOverloaded
	}
	if g, err = s.guard.Enter(ctx); err != nil {
		<-s.slot
		return nil, nil, nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	stop := make(chan struct{})
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		select {
		case <-s.guard.Stopping():
			cancel(admission.ErrStopping)
		case <-stop:
		}
	}()
	return ctx, g, func() {
		close(stop)
		<-gone
		cancel(nil)
		g.Leave()
		<-s.slot
	}, nil
}

// ExportJournal streams an export file.
func (s *journalHandler) ExportJournal(ctx context.Context, _ *connect.Request[journalv1.ExportJournalRequest], stream *connect.ServerStream[journalv1.ExportJournalResponse]) error {
	ctx, guard, leave, err := s.enter(ctx)
	if err != nil {
		return status.Public(s.log, err)
	}
	defer leave()
	// Send the headers now, because the first message may arrive late.
	if err := stream.Send(nil); err != nil {
		return err
	}
	w := &exportWriter{stream: stream, guard: guard}
	if err = s.backups.Export(ctx, w); err == nil {
		err = w.flush()
	}
	if err != nil {
		return status.Public(s.log, errors.Join(err, context.Cause(ctx)))
	}
	return nil
}

// exportBytes is the size of an export message.
const exportBytes = 512 << 10

// exportWriter collects writes into messages of exportBytes.
type exportWriter struct {
	stream *connect.ServerStream[journalv1.ExportJournalResponse]
	guard  *admission.Stream
	buf    []byte
}

// Write implements io.Writer.
func (w *exportWriter) Write(b []byte) (int, error) {
	n := len(b)
	for len(b) > 0 {
		room := min(exportBytes-len(w.buf), len(b))
		w.buf, b = append(w.buf, b[:room]...), b[room:]
		if len(w.buf) == exportBytes {
			if err := w.flush(); err != nil {
				return 0, err
			}
		}
	}
	return n, nil
}

func (w *exportWriter) flush() error {
	if len(w.buf) == 0 {
		return nil
	}
	w.guard.BeginWrite()
	err := w.stream.Send(&journalv1.ExportJournalResponse{Chunk: w.buf})
	w.guard.EndWrite()
	w.buf = w.buf[:0]
	return err
}

// ImportJournal reads an export file.
func (s *journalHandler) ImportJournal(ctx context.Context, stream *connect.ClientStream[journalv1.ImportJournalRequest]) (*connect.Response[journalv1.ImportJournalResponse], error) {
	ctx, _, leave, err := s.enter(ctx)
	if err != nil {
		return nil, status.Public(s.log, err)
	}
	defer leave()
	r := &importReader{stream: stream}
	if stream.Receive() {
		r.chunk = stream.Msg().GetChunk()
	} else if err := stream.Err(); err != nil {
		return nil, err
	}
	got, err := s.backups.Import(ctx, r, stream.Msg().GetWithSecurityRoles())
	var invalid *invalidFileError
	if errors.As(err, &invalid) {
		return nil, status.Public(s.log, status.Argument(invalid.Reason))
	}
	if err != nil {
		return nil, status.Public(s.log, errors.Join(err, context.Cause(ctx)))
	}
	return connect.NewResponse(&journalv1.ImportJournalResponse{Entities: got.Entities, Shards: got.Shards, Modules: got.Modules, Digest: got.Digest, PausedRollouts: got.PausedRollouts, Omitted: got.Omitted}), nil
}

// importReader is an io.Reader over the messages of an import.
type importReader struct {
	stream *connect.ClientStream[journalv1.ImportJournalRequest]
	chunk  []byte
}

// Read implements io.Reader.
func (r *importReader) Read(p []byte) (int, error) {
	for len(r.chunk) == 0 {
		if !r.stream.Receive() {
			if err := r.stream.Err(); err != nil {
				return 0, err
			}
			return 0, io.EOF
		}
		r.chunk = r.stream.Msg().GetChunk()
	}
	n := copy(p, r.chunk)
	r.chunk = r.chunk[n:]
	return n, nil
}
