package rpc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/api/gen/hostd/cluster/v1/clusterv1connect"
	"github.com/hostd/hostd/api/gen/hostd/entity/v1/entityv1connect"
	"github.com/hostd/hostd/api/gen/hostd/module/v1/modulev1connect"
)

// longLived says which procedures outlive the server's timeouts, and whether
// their input does too.
var longLived = map[string]struct{ input bool }{
	entityv1connect.EntityServiceSendStreamProcedure:      {input: true},
	entityv1connect.EntityServiceReadEventsProcedure:      {},
	entityv1connect.EntityServiceSubscribeProcedure:       {},
	modulev1connect.ModuleServiceVerifyProcedure:          {},
	clusterv1connect.ClusterServiceWatchClusterProcedure:  {},
	clusterv1connect.ClusterServiceWatchSettingsProcedure: {},
}

// envelopeBytes is the framing around a message in every protocol but unary
// Connect.
const envelopeBytes = 5

// bound limits the body of every request but a SendStream's, whose messages
// are limited one by one, and lifts the server's timeouts for streams.
func bound(next http.Handler, opts Options) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		stream, long := longLived[r.URL.Path]
		if long {
			conn := http.NewResponseController(w)
			conn.SetWriteDeadline(time.Time{})
			if stream.input {
				conn.SetReadDeadline(time.Time{})
			}
			r = r.WithContext(context.WithValue(r.Context(), connKey{}, conn))
		}
		if r.Body != nil && r.Body != http.NoBody && !stream.input {
			limit := opts.MaxMessageBytes
			if isUpload(r.URL.Path) || r.URL.Path == modulev1connect.ModuleServiceUploadStreamProcedure {
				limit = opts.MaxUploadBytes
			}
			r.Body = &limitedBody{body: r.Body, limit: limit, left: limit + framing(r)}
		}
		next.ServeHTTP(w, r)
	})
}

func framing(r *http.Request) int {
	kind := r.Header.Get("Content-Type")
	if strings.HasPrefix(kind, "application/grpc") || strings.HasPrefix(kind, "application/connect+") {
		return envelopeBytes
	}
	return 0
}

// limitedBody fails with invalid_argument when a request is longer than its
// limit: the caller's input is at fault, and a retry of it cannot succeed.
type limitedBody struct {
	body  io.ReadCloser
	limit int
	left  int
}

func (b *limitedBody) Read(p []byte) (int, error) {
	if b.left < 0 {
		return 0, tooLarge(b.limit)
	}
	if len(p) > b.left+1 {
		p = p[:b.left+1]
	}
	n, err := b.body.Read(p)
	if b.left -= n; b.left < 0 {
		return 0, tooLarge(b.limit)
	}
	return n, err
}

func (b *limitedBody) Close() error { return b.body.Close() }

func tooLarge(limit int) *connect.Error {
	return connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("the message is longer than %d bytes", limit))
}

// limitError gives a message over the limit of a stream the same code as one
// over the limit of a call.
func limitError(err error) error {
	var over *connect.Error
	if errors.As(err, &over) && over.Code() == connect.CodeResourceExhausted {
		return connect.NewError(connect.CodeInvalidArgument, errors.New(over.Message()))
	}
	return err
}
