package status_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/proto"

	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/host/status"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// TestCodes checks the code of every error that can reach a caller.
func TestCodes(t *testing.T) {
	cases := []struct {
		name string
		err  error
		code connect.Code
	}{
		{"request.ErrUnknownType", request.ErrUnknownType, connect.CodeNotFound},
		{"request.ErrUnknownCommand", request.ErrUnknownCommand, connect.CodeNotFound},
		{"request.ErrInternalCommand", request.ErrInternalCommand, connect.CodePermissionDenied},
		{"request.DeniedError", &request.DeniedError{Verb: "invoke", Message: "no rule allows it"}, connect.CodePermissionDenied},
		{"request.ErrRolesUnknown", request.ErrRolesUnknown, connect.CodeUnavailable},
		{"request.ErrRolesStale", request.ErrRolesStale, connect.CodeUnavailable},
		{"request.ErrNotAccepted", request.ErrNotAccepted, connect.CodeFailedPrecondition},
		{"request.ErrUnknownQuery", request.ErrUnknownQuery, connect.CodeNotFound},
		{"request.ErrCommandIDReused", request.ErrCommandIDReused, connect.CodeInvalidArgument},
		{"request.ErrBusy", request.ErrBusy, connect.CodeResourceExhausted},
		{"request.ErrOutboxFull", request.ErrOutboxFull, connect.CodeResourceExhausted},
		{"request.ErrDeadLettersFull", request.ErrDeadLettersFull, connect.CodeResourceExhausted},
		{"request.ErrReadOnly", request.ErrReadOnly, connect.CodeResourceExhausted},
		{"request.ErrOutcomeUnknown", request.ErrOutcomeUnknown, connect.CodeDeadlineExceeded},
		{"request.ErrNotApplied", request.ErrNotApplied, connect.CodeUnavailable},
		{"request.ErrNotServed", request.ErrNotServed, connect.CodeUnavailable},
		{"journal.ErrInstalling", journal.ErrInstalling, connect.CodeUnavailable},
		{"journal.ErrStopped", journal.ErrStopped, connect.CodeUnavailable},
		{"request.ErrStopped", request.ErrStopped, connect.CodeUnavailable},
		{"request.ErrDeadline", request.ErrDeadline, connect.CodeDeadlineExceeded},
		{"request.ErrQuarantined", request.ErrQuarantined, connect.CodeInternal},
		{"request.ErrForgotten", request.ErrForgotten, connect.CodeAborted},
		{"request.ErrOutputLimit", request.ErrOutputLimit, connect.CodeOutOfRange},
		{"request.ErrOutputValue", request.ErrOutputValue, connect.CodeInvalidArgument},
		{"request.ErrCompacted", request.ErrCompacted, connect.CodeFailedPrecondition},
		{"request.ErrSuspended", request.ErrSuspended, connect.CodeFailedPrecondition},
		{"journal.ErrOtherHistory", journal.ErrOtherHistory, connect.CodeOutOfRange},
		{"journal.TruncatedError", &journal.TruncatedError{First: 7}, connect.CodeOutOfRange},
		{"request.ErrDamaged", request.ErrDamaged, connect.CodeDataLoss},
		{"request.ErrUnsupported", request.ErrUnsupported, connect.CodeUnimplemented},
		{"request.RejectedError", &request.RejectedError{Code: "no", Message: "never"}, connect.CodeFailedPrecondition},
		{"request.SequenceMismatchError", &request.SequenceMismatchError{Expected: 1, Actual: 2}, connect.CodeFailedPrecondition},
		{"request.GapError", &request.GapError{Wanted: 3}, connect.CodeUnavailable},
		{"request.GuestFaultError", &request.GuestFaultError{Message: "unreachable"}, connect.CodeInternal},
		{"sharding.ErrInvalidName", sharding.ValidateID(""), connect.CodeInvalidArgument},
		{"sharding.NotLeaderError", &sharding.NotLeaderError{Shard: 3}, connect.CodeUnavailable},
		{"request.ErrUnreachable", request.ErrUnreachable, connect.CodeUnavailable},
		{"request.ErrMayStillApply", request.ErrMayStillApply, connect.CodeDeadlineExceeded},
		{"journal.ErrDamaged", journal.ErrDamaged, connect.CodeDataLoss},
		{"journal.ErrUnsupported", journal.ErrUnsupported, connect.CodeInternal},
		{"journal.ErrTooLarge", journal.ErrTooLarge, connect.CodeInternal},
		{"request.ErrNotReady", request.ErrNotReady, connect.CodeUnavailable},
		{"request.ErrModuleNotLoaded", request.ErrModuleNotLoaded, connect.CodeUnavailable},
		{"request.ErrUnknownModule", request.ErrUnknownModule, connect.CodeNotFound},
		{"request.ErrOverloaded", request.ErrOverloaded, connect.CodeResourceExhausted},
		{"request.InvalidModuleError", &request.InvalidModuleError{Reason: "bad"}, connect.CodeInvalidArgument},
		{"request.InvalidPayloadError", &request.InvalidPayloadError{Violations: []request.Violation{{Field: "a", Text: "is missing"}}}, connect.CodeInvalidArgument},
		{"request.RateLimitedError", &request.RateLimitedError{RetryAfter: time.Second}, connect.CodeResourceExhausted},
		{"context.DeadlineExceeded", context.DeadlineExceeded, connect.CodeDeadlineExceeded},
		{"context.Canceled", context.Canceled, connect.CodeCanceled},
	}
	listed := make(map[string]bool)
	for _, c := range cases {
		listed[c.name] = true
		for _, err := range []error{c.err, fmt.Errorf("wrapped: %w", c.err)} {
			public := status.Public(slog.New(slog.DiscardHandler), err)
			if public.Code() != c.code || public.Message() != err.Error() {
				t.Errorf("%s: %v %q, want %v", c.name, public.Code(), public.Message(), c.code)
			}
		}
	}
	for dir, prefix := range map[string]string{"../request": "request.", "../../sharding": "sharding.", "../../journal": "journal."} {
		for _, name := range exportedErrors(t, dir) {
			if !listed[prefix+name] {
				t.Errorf("%s%s has no code in this table", prefix, name)
			}
		}
	}
}

// exportedErrors lists the exported sentinels and error types of a package.
func exportedErrors(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			out = append(out, errorNames(d)...)
		}
	}
	if len(out) == 0 {
		t.Fatalf("%s has no errors", dir)
	}
	return out
}

func errorNames(d ast.Decl) (out []string) {
	g, ok := d.(*ast.GenDecl)
	if !ok {
		return nil
	}
	for _, spec := range g.Specs {
		switch s := spec.(type) {
		case *ast.ValueSpec:
			for _, n := range s.Names {
				if strings.HasPrefix(n.Name, "Err") {
					out = append(out, n.Name)
				}
			}
		case *ast.TypeSpec:
			if s.Name.IsExported() && strings.HasSuffix(s.Name.Name, "Error") {
				out = append(out, s.Name.Name)
			}
		}
	}
	return out
}

// TestInternalErrorTextIsNotReturned: the text of an error without a code only goes to
// the log.
func TestInternalErrorTextIsNotReturned(t *testing.T) {
	var logged strings.Builder
	log := slog.New(slog.NewTextHandler(&logged, nil))
	public := status.Public(log, errors.New("read /var/lib/hostd/store/000001.sst: input/output error"))
	if public.Code() != connect.CodeInternal || public.Message() != "internal error" {
		t.Errorf("public: %v", public)
	}
	if !strings.Contains(logged.String(), "000001.sst") {
		t.Errorf("logged: %s", logged.String())
	}
}

// TestInternalCommandRejectionHasReason: a client can distinguish this
// rejection from a rejection by roles.
func TestInternalCommandRejectionHasReason(t *testing.T) {
	info, ok := status.Detail(fmt.Errorf("wrapped: %w", request.ErrInternalCommand)).(*errdetails.ErrorInfo)
	if !ok || info.GetReason() != "INTERNAL_COMMAND" || info.GetDomain() != "hostd" {
		t.Errorf("%v", info)
	}
}

// TestStaleRolesHaveReason: a client can distinguish stale roles from a node that
// cannot be reached.
func TestStaleRolesHaveReason(t *testing.T) {
	info, ok := status.Detail(fmt.Errorf("wrapped: %w", request.ErrRolesStale)).(*errdetails.ErrorInfo)
	if !ok || info.GetReason() != "STALE_ROLES" || info.GetDomain() != "hostd" {
		t.Errorf("%v", info)
	}
}

// TestViolationsAreDetails: a client finds the violations of a payload without
// parsing a text.
func TestViolationsAreDetails(t *testing.T) {
	err := fmt.Errorf("wrapped: %w", &request.InvalidPayloadError{Violations: []request.Violation{{Field: "amout", Text: "unknown member"}, {Text: "is null"}}})
	if code := status.Public(nil, err).Code(); code != connect.CodeInvalidArgument {
		t.Errorf("%v", code)
	}
	bad, ok := status.Detail(err).(*errdetails.BadRequest)
	if !ok || len(bad.GetFieldViolations()) != 2 || bad.GetFieldViolations()[0].GetField() != "amout" || bad.GetFieldViolations()[0].GetDescription() != "unknown member" {
		t.Errorf("%v", bad)
	}
	if text := err.Error(); text != "wrapped: the payload does not match the schema: amout: unknown member; is null" {
		t.Error(text)
	}
}

// TestTruncatedEventsHaveTheFormerDetailToo: clients of the previous release find
// the first event that is left in a detail of the former name, which has the bytes
// of the current one.
func TestTruncatedEventsHaveTheFormerDetailToo(t *testing.T) {
	for name, err := range map[string]error{
		"events": fmt.Errorf("wrapped: %w", &journal.TruncatedError{First: 7}),
		"states": &status.StateTruncatedError{From: 7},
	} {
		details := status.Public(nil, err).Details()
		if len(details) != 2 {
			t.Fatalf("%s: %d details", name, len(details))
		}
		want, err := proto.Marshal(&entityv1.EventsTruncated{First: 7})
		if err != nil {
			t.Fatal(err)
		}
		for i, wanted := range []string{"hostd.entity.v1.EventsTruncated", "hostd.entity.v1.EventsCut"} {
			if d := details[i]; d.Type() != wanted || !bytes.Equal(d.Bytes(), want) {
				t.Errorf("%s: the detail is %s %x, want %s %x", name, d.Type(), d.Bytes(), wanted, want)
			}
		}
	}
}
