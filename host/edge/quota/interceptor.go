package quota

import (
	"context"
	"log/slog"
	"net/http"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/host/authn"
	"github.com/hostd/hostd/host/edge/admission"
	"github.com/hostd/hostd/host/principal"
	"github.com/hostd/hostd/host/procedure"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/host/status"
	"github.com/hostd/hostd/sharding/access"
)

// Interceptor enforces the quotas of streams, uploads and compilations. It must
// run after the interceptor that checks whether a call is allowed at all.
func (q *Quotas) Interceptor(log *slog.Logger) connect.Interceptor { return interceptor{q, log} }

type interceptor struct {
	q   *Quotas
	log *slog.Logger
}

// WrapUnary implements connect.Interceptor.
func (i interceptor) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (res connect.AnyResponse, err error) {
		p := procedure.At(req.Spec().Procedure)
		if p == nil || !p.Compiles {
			return next(ctx, req)
		}
		err = i.compile(ctx, p.Upload, func(ctx context.Context) error {
			res, err = next(ctx, req)
			return err
		})
		return res, err
	}
}

// WrapStreamingClient implements connect.Interceptor; a server has no clients.
func (i interceptor) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// WrapStreamingHandler implements connect.Interceptor.
func (i interceptor) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		serve := func(ctx context.Context) error { return next(ctx, conn) }
		if p := procedure.At(conn.Spec().Procedure); p != nil && p.Compiles {
			return i.compile(ctx, p.Pieces, serve)
		}
		return i.within(ctx, access.OpenStreams, func(*Account) error { return serve(ctx) })
	}
}

// within runs a call that counts towards a quota while it is in progress.
func (i interceptor) within(ctx context.Context, which access.Quota, serve func(*Account) error) error {
	a := i.q.open(ctx)
	if a == nil {
		return serve(nil)
	}
	defer i.q.close(a)
	if err := a.enter(which); err != nil {
		return status.Public(i.log, err)
	}
	defer a.leave(which)
	return serve(a)
}

// compile runs a call that may have a module compiled.
func (i interceptor) compile(ctx context.Context, upload bool, serve func(context.Context) error) error {
	measured := func(a *Account) error {
		if a == nil {
			return serve(ctx)
		}
		if err := a.compiles(); err != nil {
			return status.Public(i.log, err)
		}
		var spent request.Processor
		defer func() { a.chargeCompile(spent.Spent()) }()
		return serve(request.WithProcessor(ctx, &spent))
	}
	if upload {
		return i.within(ctx, access.Uploads, measured)
	}
	a := i.q.open(ctx)
	if a != nil {
		defer i.q.close(a)
	}
	return measured(a)
}

// MayUpload rejects an upload if its caller has as many in progress as its quota
// allows, so that the upload does not wait for a turn in vain. The upload itself
// is counted later, when its call begins.
func (q *Quotas) MayUpload(ctx context.Context) error {
	a := q.open(ctx)
	if a == nil {
		return nil
	}
	defer q.close(a)
	err := a.enter(access.Uploads)
	if err == nil {
		a.leave(access.Uploads)
	}
	return err
}

// Connections enforces the quota on connections of callers that authenticate
// with a certificate, from the first call on a connection until it closes. Other
// credentials come with each call and are not tied to connections.
func (q *Quotas) Connections(log *slog.Logger, next http.Handler) http.Handler {
	refuse := connect.NewErrorWriter()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if authn.Of(r.Context()).Kind == principal.Certificate {
			if err := admission.CountConnection(r.Context(), func() (func(), error) { return q.connection(r.Context()) }); err != nil {
				w.Header().Set("Connection", "close") // sent as GOAWAY over HTTP/2
				refuse.Write(w, r, status.Public(log, err))
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

// connection counts a connection. gone is called once, when the connection has
// closed.
func (q *Quotas) connection(ctx context.Context) (gone func(), err error) {
	return q.countOpen(ctx, access.Connections)
}

// Stream counts a call that lasts as long as a stream, such as a wait, as an open
// stream of its caller until leave is called. It returns an *Error if the caller
// has as many streams as its quota allows.
func (q *Quotas) Stream(ctx context.Context) (leave func(), err error) {
	if q != nil {
		leave, err = q.countOpen(ctx, access.OpenStreams)
	}
	if leave == nil {
		leave = func() {}
	}
	return leave, err
}

// countOpen counts something that a caller has open. leave is nil if no quota applies
// to the caller.
func (q *Quotas) countOpen(ctx context.Context, which access.Quota) (leave func(), err error) {
	a := q.open(ctx)
	if a == nil {
		return nil, nil
	}
	if err := a.enter(which); err != nil {
		q.close(a)
		return nil, err
	}
	return func() {
		a.leave(which)
		q.close(a)
	}, nil
}
