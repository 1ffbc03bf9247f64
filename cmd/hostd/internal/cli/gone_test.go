package cli

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/api/client"
	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	"github.com/hostd/hostd/api/gen/hostd/entity/v1/entityv1connect"
	modulev1 "github.com/hostd/hostd/api/gen/hostd/module/v1"
)

// connKey is the key of the connection in a call's context.
type connKey struct{}

// sessionWith returns a session with a node whose process ends while it answers.
func sessionWith(t *testing.T, answer func(http.ResponseWriter, *net.TCPConn)) *Session {
	t.Helper()
	url := ends(t, answer)
	c, err := client.New([]string{url}, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return NewSession(c, url, Stdio{}, time.Minute)
}

// ends starts a node that closes each connection after answer has written the
// response, as if its process ended, and returns its URL.
func ends(t *testing.T, answer func(http.ResponseWriter, *net.TCPConn)) string {
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
	return srv.URL
}

// reset resets the connection, as the kernel does if a process is killed.
func reset(t *testing.T, conn *net.TCPConn) {
	if err := conn.SetLinger(0); err != nil {
		t.Error(err)
	}
}

// checkGone checks that an error says that the node has gone away.
func checkGone(t *testing.T, what string, err error) {
	t.Helper()
	if client.CodeOf(err) != connect.CodeUnknown || !strings.Contains(err.Error(), "the connection broke") {
		t.Errorf("%s: %v", what, err)
	}
}

// TestEndedNodeIsReported checks that if a node ends while it answers, the
// error is neither a cancellation nor a failure of a module.
func TestEndedNodeIsReported(t *testing.T) {
	s := sessionWith(t, func(_ http.ResponseWriter, conn *net.TCPConn) { reset(t, conn) })
	_, err := Unary(t.Context(), s, s.EntityService.GetState, &entityv1.GetStateRequest{})
	checkGone(t, "a call that is reset", err)
	for _, err := range Stream(t.Context(), s.ModuleService.VerifyModule, &modulev1.VerifyModuleRequest{}) {
		checkGone(t, "a stream that is reset", err)
	}
	arrived := make(chan struct{})
	s = sessionWith(t, func(w http.ResponseWriter, _ *net.TCPConn) {
		w.Header().Set("Content-Type", "application/connect+proto")
		_, err := w.Write(make([]byte, 5)) // the prefix of an empty message
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
	for _, err := range Stream(t.Context(), s.ModuleService.VerifyModule, &modulev1.VerifyModuleRequest{}) {
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

// TestCanceledCallIsReportedAsCanceled checks that a call that its caller cancels is
// reported as canceled.
func TestCanceledCallIsReportedAsCanceled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	s := sessionWith(t, func(http.ResponseWriter, *net.TCPConn) {
		cancel()
		<-done
	})
	_, err := Unary(ctx, s, s.EntityService.GetState, &entityv1.GetStateRequest{})
	close(done)
	if client.CodeOf(err) != connect.CodeCanceled {
		t.Errorf("a call that is canceled: %v", err)
	}
}

// hasNone is a node without entities.
type hasNone struct {
	entityv1connect.UnimplementedEntityServiceHandler
	asked *atomic.Int64
}

func (h *hasNone) GetState(context.Context, *connect.Request[entityv1.GetStateRequest]) (*connect.Response[entityv1.GetStateResponse], error) {
	h.asked.Add(1)
	return nil, connect.NewError(connect.CodeNotFound, errors.New("there is none"))
}

// TestReadIsRetriedOnNextNode checks that if a node ends, a read-only call is
// repeated at the next nodes, once at each, and that the answer of such a
// node is returned.
func TestReadIsRetriedOnNextNode(t *testing.T) {
	var asked [3]atomic.Int64
	ended := func(i int) string {
		return ends(t, func(_ http.ResponseWriter, conn *net.TCPConn) { asked[i].Add(1); reset(t, conn) })
	}
	_, handler := entityv1connect.NewEntityServiceHandler(&hasNone{asked: &asked[2]})
	answering := httptest.NewUnstartedServer(handler)
	answering.Config.Protocols = new(http.Protocols)
	answering.Config.Protocols.SetUnencryptedHTTP2(true)
	answering.Start()
	defer answering.Close()
	answers := answering.URL
	for _, c := range []struct {
		nodes []string
		code  connect.Code
		asked [3]int64
		says  int
	}{
		{[]string{ended(0), ended(1), answers}, connect.CodeNotFound, [3]int64{1, 1, 1}, 2},
		{[]string{answers, ended(0)}, connect.CodeNotFound, [3]int64{0, 0, 1}, 0}, // the first node has answered, so no other is asked
		{[]string{ended(0), ended(1)}, connect.CodeUnknown, [3]int64{1, 1, 0}, 1},
		{[]string{ended(0)}, connect.CodeUnknown, [3]int64{1, 0, 0}, 0},
	} {
		for i := range asked {
			asked[i].Store(0)
		}
		var said strings.Builder
		r := &Remote{Addr: strings.Join(c.nodes, ","), Timeout: time.Minute}
		s, err := r.Open(t.Context(), Stdio{Err: &said})
		if err != nil {
			t.Fatal(err)
		}
		_, err = Anywhere(t.Context(), s, func(ctx context.Context) (*entityv1.GetStateResponse, error) {
			return Unary(ctx, s, s.EntityService.GetState, &entityv1.GetStateRequest{})
		})
		if got := [3]int64{asked[0].Load(), asked[1].Load(), asked[2].Load()}; client.CodeOf(err) != c.code || got != c.asked || strings.Count(said.String(), "does not answer, trying") != c.says {
			t.Errorf("of %d nodes %v were asked, %v; want %v and %v, told %d times:\n%s", len(c.nodes), got, err, c.asked, c.code, c.says, said.String())
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}
