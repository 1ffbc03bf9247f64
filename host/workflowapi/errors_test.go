package workflowapi

import (
	"errors"
	"fmt"
	"log/slog"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/proto"

	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	"github.com/hostd/hostd/host/status"
)

// TestRejectionsOfRunsHaveReasons: the rejection of a command by a run is an error
// with a code and a reason for programs. A limit of open runs passes, so its
// error says when to try again.
func TestRejectionsOfRunsHaveReasons(t *testing.T) {
	for _, c := range []struct {
		rejection string
		code      connect.Code
		reason    string
		retry     bool
	}{
		{codeAlreadyStarted, connect.CodeAlreadyExists, reasonExists, false},
		{codeNotStarted, connect.CodeNotFound, reasonNotFound, false},
		{codeEnded, connect.CodeFailedPrecondition, reasonEnded, false},
		{codeTooManyRuns, connect.CodeResourceExhausted, reasonTooManyRuns, true},
		{"of_the_module", connect.CodeFailedPrecondition, "", false},
	} {
		detail, err := connect.NewErrorDetail(&entityv1.Rejection{Code: c.rejection, Message: "max-open-runs: no more"})
		if err != nil {
			t.Fatal(err)
		}
		rejected := connect.NewError(connect.CodeFailedPrecondition, errors.New("rejected"))
		rejected.AddDetail(detail)
		public := status.Public(slog.New(slog.DiscardHandler), asRunError(rejected))
		var reason string
		var retry, rejection bool
		for _, d := range public.Details() {
			switch m := valueOf(t, d).(type) {
			case *errdetails.ErrorInfo:
				reason = m.GetReason()
			case *errdetails.RetryInfo:
				retry = m.GetRetryDelay().AsDuration() > 0
			case *entityv1.Rejection:
				rejection = true
			}
		}
		got := fmt.Sprint(public.Code(), reason, retry, rejection)
		if want := fmt.Sprint(c.code, c.reason, c.retry, c.reason == ""); got != want {
			t.Errorf("%s: %s, want %s", c.rejection, got, want)
		}
	}
}

func valueOf(t *testing.T, d *connect.ErrorDetail) proto.Message {
	t.Helper()
	m, err := d.Value()
	if err != nil {
		t.Fatal(err)
	}
	return m
}
