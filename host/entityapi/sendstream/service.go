package sendstream

import (
	"context"
	"log/slog"
	"time"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/hostd/hostd/api/wire"
	"github.com/hostd/hostd/host/entityapi/command"
	"github.com/hostd/hostd/host/rpc/admission"
	"github.com/hostd/hostd/host/rpc/authorize"
	"github.com/hostd/hostd/host/rpc/leaderproxy"
	"github.com/hostd/hostd/host/rpc/quota"
	"github.com/hostd/hostd/host/status"
	"github.com/hostd/hostd/host/traces"
	"github.com/hostd/hostd/sharding"
)

// Options are what a service stands on, all of them needed but Roles,
// Quotas and Registerer, and its bounds.
type Options struct {
	Runtime  command.Runtime
	Types    command.Types
	IDs      *command.IDs
	Streams  *admission.Streams
	Waiting  *admission.Waiting
	Arrivals admission.Arrivals
	Deadline time.Duration         // of a command
	Roles    *authorize.Authorizer // nil: everybody may send everything
	Quotas   *quota.Quotas         // nil bounds nobody
	NodeID   sharding.NodeID
	Log      *slog.Logger
	// MaxInFlight bounds the commands of a stream that are read and not yet
	// answered, MaxBytes the bytes of its messages that the runtime has not let
	// go of. One message is always read.
	MaxInFlight int
	MaxBytes    int64
	// Registerer gets the metrics; nil drops them.
	Registerer prometheus.Registerer
}

// Service answers SendStream. Its messages pass through the codec as bytes and
// are taken apart here.
type Service struct {
	Options
	nodeID  []byte
	batches batches
	items   *prometheus.CounterVec // code
	done    prometheus.Counter     // items without an error
}

// New makes a service.
func New(o Options) *Service {
	s := &Service{Options: o, nodeID: []byte(o.NodeID)}
	s.items = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "hostd_rpc_stream_commands_total", Help: "Commands of SendStream that have been answered, by code.",
	}, []string{"code"})
	s.done = s.items.WithLabelValues("ok")
	if o.Registerer != nil {
		o.Registerer.MustRegister(s.items)
	}
	return s
}

// Serve carries a call out.
func (s *Service) Serve(ctx context.Context, conn *connect.BidiStream[wire.Message, wire.Message]) error {
	guard, err := s.Streams.Enter(ctx)
	if err != nil {
		return status.Public(s.Log, err)
	}
	defer guard.Leave()
	// Headers now: the client may wait for them before its first command.
	if err := conn.Send(nil); err != nil {
		return err
	}
	st := &stream{
		svc:    s,
		charge: admission.ChargeOf(ctx),
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
