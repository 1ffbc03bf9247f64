package client_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/api/client"
	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	"github.com/hostd/hostd/api/gen/hostd/entity/v1/entityv1connect"
)

// lateEntities accepts the first attempt of a command and does not answer it,
// like a frozen node. It rejects later attempts with the detail.
type lateEntities struct {
	entityv1connect.UnimplementedEntityServiceHandler
	detail   connect.ErrorDetail
	attempts int
}

func (e *lateEntities) SendCommand(context.Context, *connect.Request[entityv1.SendCommandRequest]) (*connect.Response[entityv1.SendCommandResponse], error) {
	if e.attempts++; e.attempts == 1 {
		panic(http.ErrAbortHandler)
	}
	err := connect.NewError(connect.CodeFailedPrecondition, nil)
	err.AddDetail(&e.detail)
	return nil, err
}

// A rejection does not settle the outcome of an attempt that is still in
// transit, because the handler may accept that attempt later, in a different
// state. A sequence mismatch does settle the outcome.
func TestRejectionLeavesEarlierAttemptUnknown(t *testing.T) {
	rejection, err := connect.NewErrorDetail(&entityv1.Rejection{Code: "insufficient_funds"})
	if err != nil {
		t.Fatal(err)
	}
	mismatch, err := connect.NewErrorDetail(&entityv1.SequenceMismatch{Actual: 7})
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		detail  *connect.ErrorDetail
		unknown bool
	}{{rejection, true}, {mismatch, false}} {
		entities := &lateEntities{detail: *test.detail}
		mux := http.NewServeMux()
		mux.Handle(entityv1connect.NewEntityServiceHandler(entities))
		server := httptest.NewUnstartedServer(mux)
		server.Config.Protocols = new(http.Protocols)
		server.Config.Protocols.SetHTTP1(true)
		server.Config.Protocols.SetUnencryptedHTTP2(true)
		server.Start()
		c, err := client.New([]string{server.Listener.Addr().String()}, client.Options{GivenOnly: true})
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Send(t.Context(), client.Command{EntityType: "account", EntityID: "a", Name: "withdraw"})
		if client.OutcomeUnknown(err) != test.unknown || entities.attempts != 2 {
			t.Errorf("%s after %d attempts: %v", test.detail.Type(), entities.attempts, err)
		}
		c.Close()
		server.Close()
	}
}
