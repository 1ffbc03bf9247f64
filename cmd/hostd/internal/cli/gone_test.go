package cli

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/api/client"
	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	modulev1 "github.com/hostd/hostd/api/gen/hostd/module/v1"
)

// connKey is under which a call's context has its connection.
type connKey struct{}

// goes is a node whose process ends while it answers.
func goes(t *testing.T, answer func(http.ResponseWriter, *net.TCPConn)) *Session {
	t.Helper()
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn := r.Context().Value(connKey{}).(*net.TCPConn)
		answer(w, conn)
		_ = conn.Close()
	}))
	srv.Config.Protocols = new(http.Protocols)
	srv.Config.Protocols.SetHTTP1(true)
	srv.Config.Protocols.SetUnencryptedHTTP2(true)
	srv.Config.ConnContext = func(ctx context.Context, conn net.Conn) context.Context {
		return context.WithValue(ctx, connKey{}, conn)
	}
	srv.Start()
	t.Cleanup(srv.Close)
	c, err := client.New([]string{srv.URL}, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return NewSession(c, srv.URL, Stdio{}, time.Minute)
}

// reset has the connection end as the kernel ends those of a killed process.
func reset(t *testing.T, conn *net.TCPConn) {
	if err := conn.SetLinger(0); err != nil {
		t.Error(err)
	}
}

// checkGone demands that an error says that the node went away.
func checkGone(t *testing.T, what string, err error) {
	t.Helper()
	if client.CodeOf(err) != connect.CodeUnknown || !strings.Contains(err.Error(), "the node went away") {
		t.Errorf("%s: %v", what, err)
	}
}

// TestNodesThatGoAwayAreNamed: where a node ends while it answers, nobody has
// canceled the call and no module has failed.
func TestNodesThatGoAwayAreNamed(t *testing.T) {
	s := goes(t, func(_ http.ResponseWriter, conn *net.TCPConn) { reset(t, conn) })
	_, err := Unary(t.Context(), s, s.EntityService.GetState, &entityv1.GetStateRequest{})
	checkGone(t, "a call that is reset", err)
	for _, err := range Stream(t.Context(), s.ModuleService.Verify, &modulev1.VerifyRequest{}) {
		checkGone(t, "a stream that is reset", err)
	}
	arrived := make(chan struct{})
	s = goes(t, func(w http.ResponseWriter, _ *net.TCPConn) {
		w.Header().Set("Content-Type", "application/connect+proto")
		_, err := w.Write(make([]byte, 5)) // the head of an empty message
		if err := errors.Join(err, http.NewResponseController(w).Flush()); err != nil {
			t.Error(err)
		}
		select {
		case <-arrived:
		case <-time.After(time.Minute):
			t.Error("the message does not arrive")
		}
	})
	came := 0
	for _, err := range Stream(t.Context(), s.ModuleService.Verify, &modulev1.VerifyRequest{}) {
		if came++; came == 1 && err == nil {
			close(arrived)
			continue
		}
		checkGone(t, "a stream that is cut", err)
	}
	if came != 2 {
		t.Errorf("%d messages and errors came, not 2", came)
	}
}

// TestCallsThatAreCanceledSaySo: where the caller ends a call that is so.
func TestCallsThatAreCanceledSaySo(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	s := goes(t, func(http.ResponseWriter, *net.TCPConn) {
		cancel()
		<-done
	})
	_, err := Unary(ctx, s, s.EntityService.GetState, &entityv1.GetStateRequest{})
	close(done)
	if client.CodeOf(err) != connect.CodeCanceled {
		t.Errorf("a call that is canceled: %v", err)
	}
}
