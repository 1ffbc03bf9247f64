package plainhttp

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
)

// TestStartBeyondALimitSaysWhenToRepeat: a start that a shard has no room for is
// not an error of the request: it has status 429, its reason and the delay.
func TestStartBeyondALimitSaysWhenToRepeat(t *testing.T) {
	refused := connect.NewError(connect.CodeResourceExhausted, errors.New("max-open-runs: no more"))
	for _, m := range []proto.Message{&errdetails.ErrorInfo{Reason: "TOO_MANY_RUNS"}, &errdetails.RetryInfo{RetryDelay: durationpb.New(5 * time.Second)}} {
		d, err := connect.NewErrorDetail(m)
		if err != nil {
			t.Fatal(err)
		}
		refused.AddDetail(d)
	}
	api := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := connect.NewErrorWriter().Write(w, r, refused); err != nil {
			t.Error(err)
		}
	})
	w := httptest.NewRecorder()
	Wrap(api, Options{Types: jsonCluster(4), Entities: jsonCluster(4)}).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/w/payout/p1", strings.NewReader(`{}`)))
	var got problem
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || w.Code != http.StatusTooManyRequests || got.Code != "resource_exhausted" || got.Reason != "TOO_MANY_RUNS" || w.Header().Get("Retry-After") != "5" {
		t.Errorf("%d %s, Retry-After %q, %v", w.Code, w.Body, w.Header().Get("Retry-After"), err)
	}
}
