package rpc

import (
	"context"
	"log/slog"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/host/rpc/authorize"
	"github.com/hostd/hostd/host/rpc/leaderproxy"
	"github.com/hostd/hostd/host/status"
)

// permission is the one place that decides who may change the cluster. What a
// call does to it is written in the proto: every rpc without the option
// NO_SIDE_EFFECTS changes something, so a new one is closed until it says that
// it is a read. The node that a caller asks decides: when it passes the
// operation on to the coordinator's node, that one does not ask again. Where
// the roles of the caller have decided, they alone do.
type permission struct {
	full bool
	log  *slog.Logger
}

func (p permission) check(ctx context.Context, spec connect.Spec) error {
	if p.full || authorize.Decided(ctx) || leaderproxy.FromPeer(ctx) || spec.IdempotencyLevel == connect.IdempotencyNoSideEffects {
		return nil
	}
	p.log.Warn("refused to change the cluster", "procedure", spec.Procedure)
	return status.Public(p.log, status.ErrAdminOff)
}

// WrapUnary implements connect.Interceptor.
func (p permission) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		if err := p.check(ctx, req.Spec()); err != nil {
			return nil, err
		}
		return next(ctx, req)
	}
}

// WrapStreamingClient implements connect.Interceptor; the server has no clients.
func (p permission) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// WrapStreamingHandler implements connect.Interceptor.
func (p permission) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		if err := p.check(ctx, conn.Spec()); err != nil {
			return err
		}
		return next(ctx, conn)
	}
}
