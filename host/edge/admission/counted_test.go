package admission

import (
	"context"
	"errors"
	"net"
	"net/http"
	"testing"
	"time"
)

// TestConnectionsAreCountedUntilTheyEnd: take is called until it counts the
// connection, and gone is called once when the connection ends.
func TestConnectionsAreCountedUntilTheyEnd(t *testing.T) {
	conns := NewConnections(8, 8)
	near, far := net.Pipe()
	defer far.Close()
	c, _ := conns.admit(near, time.Now())
	conns.State(c, http.StateNew)
	ctx := conns.ConnContext(context.Background(), c)
	var taken, gone int
	refuse := errors.New("no")
	if err := CountConnection(ctx, func() (func(), error) { taken++; return nil, refuse }); !errors.Is(err, refuse) {
		t.Errorf("a refusal is told as %v", err)
	}
	if err := CountConnection(ctx, func() (func(), error) { taken++; return nil, nil }); err != nil {
		t.Error(err)
	}
	for range 3 {
		if err := CountConnection(ctx, func() (func(), error) { taken++; return func() { gone++ }, nil }); err != nil {
			t.Error(err)
		}
	}
	if taken != 3 || gone != 0 {
		t.Errorf("asked %d times, told %d times", taken, gone)
	}
	conns.State(c, http.StateClosed)
	conns.State(c, http.StateClosed)
	if err := CountConnection(ctx, func() (func(), error) { taken++; return func() {}, nil }); err != nil || taken != 3 || gone != 1 {
		t.Errorf("it has ended: asked %d times, told %d times, %v", taken, gone, err)
	}
	if err := CountConnection(context.Background(), func() (func(), error) { return nil, refuse }); err != nil {
		t.Errorf("without a connection: %v", err)
	}
	c.Close()
}
