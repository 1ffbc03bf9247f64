package edge_test

import (
	"net/http"
	"sync/atomic"
	"testing"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/host/edge"
)

// pauses is a Pauses that the test controls.
type pauses struct {
	epoch    atomic.Uint64
	settling atomic.Bool
}

func (p *pauses) Epoch() uint64  { return p.epoch.Load() }
func (p *pauses) Settling() bool { return p.settling.Load() }

// TestRequestsFromBeforePauseAreRejected: unary calls and streams on connections
// from before a pause are rejected, and the next connection works.
func TestRequestsFromBeforePauseAreRejected(t *testing.T) {
	p := new(pauses)
	s := serve(t, edge.Options{Pauses: p})
	c := s.entities()
	if _, err := c.SendCommand(t.Context(), connect.NewRequest(add("a", 1))); err != nil {
		t.Fatal(err)
	}
	stream := c.SendCommandStream(t.Context())
	if err := stream.Send(message(1, add("b", 1))); err != nil {
		t.Fatal(err)
	}
	// The server has received the stream's request, because its response
	// headers arrive.
	if _, err := stream.Receive(); err != nil {
		t.Fatal(err)
	}
	p.epoch.Add(1)
	if _, err := c.SendCommand(t.Context(), connect.NewRequest(add("a", 1))); connect.CodeOf(err) != connect.CodeUnavailable {
		t.Errorf("on a connection from before: %v", err)
	}
	_ = stream.Send(message(2, add("a", 1)))
	if res, err := stream.Receive(); connect.CodeOf(err) != connect.CodeUnavailable {
		t.Errorf("on a stream from before: %v %v", res, err)
	}
	stream.CloseRequest()
	stream.CloseResponse()
	eventually(t, "a new connection", func() bool {
		_, err := c.SendCommand(t.Context(), connect.NewRequest(add("a", 1)))
		return err == nil
	})
	if n := s.world.Total("a"); n != 2 {
		t.Errorf("%d commands took effect", n)
	}
}

// TestConnectionsAcceptedDuringPauseAreClosed: connections that the kernel accepted during
// the pause are closed.
func TestConnectionsAcceptedDuringPauseAreClosed(t *testing.T) {
	p := new(pauses)
	p.settling.Store(true)
	s := serve(t, edge.Options{Pauses: p})
	if res, err := http.Get(s.url + "/livez"); err == nil {
		res.Body.Close()
		t.Errorf("a connection that is not trusted is served: %s", res.Status)
	}
	p.settling.Store(false)
	res, err := http.Get(s.url + "/livez")
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
}
