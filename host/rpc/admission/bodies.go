package admission

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/api/gen/hostd/cluster/v1/clusterv1connect"
	"github.com/hostd/hostd/api/gen/hostd/entity/v1/entityv1connect"
	"github.com/hostd/hostd/api/gen/hostd/journal/v1/journalv1connect"
	"github.com/hostd/hostd/api/gen/hostd/module/v1/modulev1connect"
	"github.com/hostd/hostd/api/wire"
)

// longLived says which procedures outlive the server's timeouts, and whether
// their input does too.
var longLived = map[string]struct{ input bool }{
	entityv1connect.EntityServiceSendStreamProcedure:      {input: true},
	entityv1connect.EntityServiceReadEventsProcedure:      {},
	entityv1connect.EntityServiceSubscribeProcedure:       {},
	modulev1connect.ModuleServiceVerifyProcedure:          {},
	journalv1connect.JournalServiceExportProcedure:        {},
	journalv1connect.JournalServiceImportProcedure:        {input: true},
	clusterv1connect.ClusterServiceWatchClusterProcedure:  {},
	clusterv1connect.ClusterServiceWatchShardsProcedure:   {},
	clusterv1connect.ClusterServiceWatchStatsProcedure:    {},
	clusterv1connect.ClusterServiceWatchSettingsProcedure: {},
	clusterv1connect.ClusterServiceTailLogsProcedure:      {},
	clusterv1connect.ClusterServiceProfileNodeProcedure:   {},
	clusterv1connect.ClusterServiceProfileGuestsProcedure: {},
}

// Bodies limits what every request may carry and lifts the server's timeouts
// for streams.
func Bodies(next http.Handler, messageBytes, uploadBytes int) http.Handler {
	message, upload := tooLarge(messageBytes), tooLarge(uploadBytes)
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
		if r.Body != nil && r.Body != http.NoBody {
			// The server goes by the type of its own request's body when it
			// decides whether what is left of it can be read away. With another
			// type in its place it would go on with the rest of a body that was
			// closed early, and take that for the connection's next request.
			copied := *r
			r = &copied
			limit, over := messageBytes, message
			if IsUpload(r.URL.Path) {
				limit, over = uploadBytes, upload
			}
			switch enveloped := isEnveloped(r); {
			case r.URL.Path == modulev1connect.ModuleServiceUploadStreamProcedure:
				whole := &limitedBody{body: r.Body, left: uploadBytes, over: upload}
				r.Body = &wire.Envelopes{Body: whole, Limit: limit, OverLimit: over}
			case enveloped:
				r.Body = &wire.Envelopes{Body: r.Body, Limit: limit, OverLimit: over}
			default:
				r.Body = &limitedBody{body: r.Body, left: limit, over: over}
			}
		}
		next.ServeHTTP(w, r)
	})
}

// IsUpload reports whether the one message of a procedure is a module.
func IsUpload(procedure string) bool {
	return procedure == modulev1connect.ModuleServiceUploadProcedure
}

// isEnveloped reports whether messages have prefixes, as they have in every
// protocol but unary Connect.
func isEnveloped(r *http.Request) bool {
	kind := r.Header.Get("Content-Type")
	return strings.HasPrefix(kind, "application/grpc") || strings.HasPrefix(kind, "application/connect+")
}

// tooLarge is what a message over a limit gets: the caller's input is at
// fault, and a retry of it cannot succeed.
func tooLarge(limit int) *connect.Error {
	return connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("a message is longer than %d bytes", limit))
}

// limitedBody fails when there is more of a request than its limit.
type limitedBody struct {
	body io.ReadCloser
	left int // below 0 once the limit is passed
	over error
}

func (b *limitedBody) Read(p []byte) (int, error) {
	if b.left < 0 {
		return 0, b.over
	}
	if len(p) > b.left+1 {
		p = p[:b.left+1]
	}
	n, err := b.body.Read(p)
	if b.left -= n; b.left < 0 {
		return 0, b.over
	}
	return n, err
}

func (b *limitedBody) Close() error { return b.body.Close() }
