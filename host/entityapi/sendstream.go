package entityapi

import (
	"context"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/hostd/hostd/api/wire"
	"github.com/hostd/hostd/host/edge/admission"
	"github.com/hostd/hostd/host/edge/leaderproxy"
	"github.com/hostd/hostd/host/status"
	"github.com/hostd/hostd/host/traces"
)

// sendStreams implements SendCommandStream. Each message is a batch that is
// submitted to the runtime at once. All answers that are ready when the client
// can accept more are sent together. The commands and bytes in flight of a
// stream are limited; at the limit the stream stops reading. The codec passes
// the messages on as bytes, which are parsed here.
//
// A call has two goroutines: the caller's goroutine reads, and a second one,
// which is joined before the call ends, writes. Completions are called by
// whichever goroutine ends a request, mostly an executor's, and never block.
type sendStreams struct {
	*handler
	nodeID  []byte
	batches batches
	items   *prometheus.CounterVec // counters by code
	done    prometheus.Counter     // counter of items without an error
}

// newSendStreams returns the streams of a handler and registers their metrics.
func newSendStreams(h *handler) *sendStreams {
	s := &sendStreams{handler: h, nodeID: []byte(h.Self)}
	s.items = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "hostd_rpc_stream_commands_total", Help: "Completed commands of SendCommandStream, by code.",
	}, []string{"code"})
	s.done = s.items.WithLabelValues("ok")
	if h.Registerer != nil {
		h.Registerer.MustRegister(s.items)
	}
	return s
}

// Serve runs one call.
func (s *sendStreams) Serve(ctx context.Context, conn *connect.BidiStream[wire.Message, wire.Message]) error {
	guard, err := s.Streams.Enter(ctx)
	if err != nil {
		return status.Public(s.Log, err)
	}
	defer guard.Leave()
	// Send the headers now, because the client may wait for them before its
	// first command.
	if err := conn.Send(nil); err != nil {
		return err
	}
	st := &stream{
		svc:    s,
		charge: admission.ChargeOf(ctx),
		share:  s.Waiting.Of(ctx),
		who:    leaderproxy.Caller(ctx),
		trace:  traces.Of(ctx),
		conn:   conn,
		guard:  guard,
		wake:   make(chan struct{}, 1),
		room:   make(chan struct{}, 1),
		gone:   make(chan struct{}),
	}
	st.deadline, _ = ctx.Deadline()
	var writeErr error
	go func() {
		defer close(st.gone)
		if writeErr = st.write(ctx); writeErr != nil {
			guard.AbortRead()
		}
	}()
	readErr := st.read(ctx)
	st.endInput()
	<-st.gone
	st.close()
	switch {
	case writeErr != nil:
		return status.Public(s.Log, writeErr)
	case s.Streams.IsStopping():
		return connect.NewError(connect.CodeUnavailable, admission.ErrStopping)
	case readErr != nil:
		return status.Public(s.Log, readErr)
	}
	return nil
}
