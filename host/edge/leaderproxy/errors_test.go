package leaderproxy

import (
	"context"
	"errors"
	"net/http/httptest"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/hostd/hostd/host/status"
	"github.com/hostd/hostd/journal"
)

// TestForwardedErrorsKeepTheirDetails: the caller of a forwarded call gets all
// details of the other node's error, including the one of a former name, whose
// type this node does not have.
func TestForwardedErrorsKeepTheirDetails(t *testing.T) {
	public := status.Public(nil, &journal.TruncatedError{First: 7})
	s := httptest.NewServer(connect.NewUnaryHandler("/a/b", func(context.Context, *connect.Request[emptypb.Empty]) (*connect.Response[emptypb.Empty], error) {
		return nil, public
	}))
	defer s.Close()
	for name, protocol := range map[string]connect.ClientOption{"Connect": connect.WithProtoJSON(), "gRPC-Web": connect.WithGRPCWeb()} {
		_, err := connect.NewClient[emptypb.Empty, emptypb.Empty](s.Client(), s.URL+"/a/b", protocol).CallUnary(t.Context(), connect.NewRequest(new(emptypb.Empty)))
		var got *connect.Error
		if !errors.As(CallerError(err), &got) || got.Code() != connect.CodeOutOfRange || len(got.Details()) != 2 {
			t.Fatalf("%s: %v", name, err)
		}
		for i, want := range public.Details() {
			if d := got.Details()[i]; d.Type() != want.Type() || string(d.Bytes()) != string(want.Bytes()) {
				t.Errorf("%s: the detail is %s %x, want %s %x", name, d.Type(), d.Bytes(), want.Type(), want.Bytes())
			}
		}
	}
}
