package admission

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"
)

// TestEndOfStreamHasDeadline: a client that does not read the end of a stream
// does not hold the handler.
func TestEndOfStreamHasDeadline(t *testing.T) {
	streams := NewStreams(1, 1, 50*time.Millisecond, nil)
	failed := make(chan error, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s, err := streams.Enter(context.WithValue(r.Context(), connKey{}, http.NewResponseController(w)))
		if err == nil {
			s.Leave()
		}
		for piece := make([]byte, 64<<10); err == nil; { // more than the buffers of a connection hold
			_, err = w.Write(piece)
		}
		failed <- err
	}))
	defer server.Close()
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("GET / HTTP/1.1\r\nHost: h\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-failed:
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("the handler writes without a deadline")
	}
}
