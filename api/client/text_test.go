package client_test

import (
	"context"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/api/client"
	"github.com/hostd/hostd/tests/support/rpctest"
)

// TestNonUTF8TextIsNotSent checks that text that is not UTF-8 is never sent.
// The client does not retry it, and the outcome is known.
func TestNonUTF8TextIsNotSent(t *testing.T) {
	_, addr := serve(t, rpctest.New())
	c, err := client.New([]string{addr}, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	_, err = c.Send(ctx, add("a\xff", 1))
	if client.CodeOf(err) != connect.CodeInvalidArgument || client.OutcomeUnknown(err) {
		t.Errorf("a command: %v", err)
	}
	if _, err = c.Query(ctx, client.Query{EntityType: rpctest.Counter, EntityID: "a", Name: "\xff"}); client.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("a query: %v", err)
	}
	s := c.Stream(client.StreamOptions{})
	defer s.Close(t.Context())
	if _, err := s.Call(ctx, add("a\xff", 1)); client.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("a command on a stream: %v", err)
	}
	if _, err := s.Call(ctx, add("a", 1)); err != nil {
		t.Errorf("the next command on the stream: %v", err)
	}
}
