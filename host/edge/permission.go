package edge

import (
	"context"
	"log/slog"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/host/edge/authorize"
	"github.com/hostd/hostd/host/edge/leaderproxy"
	"github.com/hostd/hostd/host/status"
)

// permission is the only check of the `admin` option, which decides whether
// callers may change the cluster. The proto declares the effect of a call: every
// rpc without the option NO_SIDE_EFFECTS counts as a change, so a new rpc is
// denied by default until it is marked as a read. The node that receives the
// call decides, and the coordinator's node does not check a forwarded call
// again. If roles have decided about the caller, their decision replaces this
// check.
type permission struct {
	full bool
	log  *slog.Logger
}

func (p permission) check(ctx context.Context, spec connect.Spec) error {
	if p.full || authorize.AllowedByRoles(ctx) || leaderproxy.FromPeer(ctx) || spec.IdempotencyLevel == connect.IdempotencyNoSideEffects {
		return nil
	}
	p.log.Warn("rejected a call that changes the cluster", "procedure", spec.Procedure)
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
