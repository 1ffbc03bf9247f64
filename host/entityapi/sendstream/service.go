package sendstream

import (
	"context"
	"log/slog"
	"time"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/hostd/hostd/api/wire"
	"github.com/hostd/hostd/host/edge/admission"
	"github.com/hostd/hostd/host/edge/authorize"
	"github.com/hostd/hostd/host/edge/leaderproxy"
	"github.com/hostd/hostd/host/edge/quota"
	"github.com/hostd/hostd/host/entityapi/command"
	"github.com/hostd/hostd/host/status"
	"github.com/hostd/hostd/host/traces"
	"github.com/hostd/hostd/sharding"
)

// Options configure a service. All fields are required except Roles, Quotas and
// Registerer.
type Options struct {
	Runtime  command.Runtime
	Types    command.Types
	IDs      *command.IDs
	Streams  *admission.Streams
	Waiting  *admission.Waiting
	Arrivals admission.Arrivals
	Deadline time.Duration         // default deadline of a command
	Roles    *authorize.Authorizer // if nil, every caller may send everything
	Quotas   *quota.Quotas         // if nil, there are no limits
	NodeID   sharding.NodeID
	Log      *slog.Logger
	// MaxInFlight limits the commands of a stream that were read but are not
	// answered yet, and MaxBytes the bytes of its messages that the runtime has
	// not released yet. One message is read even if it exceeds these limits.
	MaxInFlight int
	MaxBytes    int64
	// Registerer registers the metrics; nil drops them.
	Registerer prometheus.Registerer
}

// Service implements SendCommandStream. The codec passes its messages on as bytes, and
// this package parses them.
type Service struct {
	Options
	nodeID  []byte
	batches batches
	items   *prometheus.CounterVec // counters by code
	done    prometheus.Counter     // counter of items without an error
}

// New makes a service.
func New(o Options) *Service {
	s := &Service{Options: o, nodeID: []byte(o.NodeID)}
	s.items = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "hostd_rpc_stream_commands_total", Help: "Completed commands of SendCommandStream, by code.",
	}, []string{"code"})
	s.done = s.items.WithLabelValues("ok")
	if o.Registerer != nil {
		o.Registerer.MustRegister(s.items)
	}
	return s
}

// Serve runs one call.
func (s *Service) Serve(ctx context.Context, conn *connect.BidiStream[wire.Message, wire.Message]) error {
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
