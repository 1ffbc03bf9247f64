package client_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/api/client"
	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	"github.com/hostd/hostd/api/gen/hostd/entity/v1/entityv1connect"
	"github.com/hostd/hostd/host/edge"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/host/services"
	"github.com/hostd/hostd/tests/support/loopback"
	"github.com/hostd/hostd/tests/support/rpctest"
)

// forgetful rejects the first attempt without running it, accepts the second
// without answering it, and has forgotten it at the third.
type forgetful struct {
	entityv1connect.UnimplementedEntityServiceHandler
	ages []time.Duration
}

func (e *forgetful) SendCommand(_ context.Context, r *connect.Request[entityv1.SendCommandRequest]) (*connect.Response[entityv1.SendCommandResponse], error) {
	e.ages = append(e.ages, r.Msg.GetFirstAttemptAge().AsDuration())
	switch len(e.ages) {
	case 1:
		return nil, connect.NewError(connect.CodeUnavailable, nil)
	case 2:
		panic(http.ErrAbortHandler)
	}
	return nil, connect.NewError(connect.CodeAborted, nil)
}

// TestRetriesReportTheirAge checks that a retry reports the age of the first
// attempt that may have taken effect, which may be an earlier attempt of the
// caller. If a node has forgotten the command, the client does not retry.
func TestRetriesReportTheirAge(t *testing.T) {
	for _, tt := range []struct {
		name  string
		tried time.Duration // how long ago the caller first tried
		least [3]time.Duration
	}{
		{"the client's own", 0, [3]time.Duration{0, 0, time.Millisecond}},
		{"the caller's", time.Minute, [3]time.Duration{time.Minute, time.Minute, time.Minute}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			entities := &forgetful{}
			mux := http.NewServeMux()
			mux.Handle(entityv1connect.NewEntityServiceHandler(entities))
			server := httptest.NewUnstartedServer(mux)
			server.Config.Protocols = new(http.Protocols)
			server.Config.Protocols.SetHTTP1(true)
			server.Config.Protocols.SetUnencryptedHTTP2(true)
			server.Start()
			defer server.Close()
			c, err := client.New([]string{server.Listener.Addr().String()}, client.Options{GivenOnly: true})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			cmd := client.Command{EntityType: "account", EntityID: "a", Name: "withdraw", ID: "w-1"}
			if tt.tried > 0 {
				cmd.FirstTried = time.Now().Add(-tt.tried)
			}
			_, err = c.Send(t.Context(), cmd)
			if client.CodeOf(err) != connect.CodeAborted || !client.OutcomeUnknown(err) || len(entities.ages) != 3 {
				t.Fatalf("%v after attempts of the ages %d", err, entities.ages)
			}
			for i, age := range entities.ages {
				if age < tt.least[i] || tt.least[i] == 0 && age != 0 {
					t.Errorf("attempt %d was %d ms old, want %d at least, and none for 0", i+1, age, tt.least[i])
				}
			}
		})
	}
}

// recorder records the commands that a server passes to its runtime.
type recorder struct {
	*rpctest.World
	mu   sync.Mutex
	seen []request.Request
}

func (r *recorder) Submit(reqs []*request.Request) {
	r.mu.Lock()
	for _, q := range reqs {
		r.seen = append(r.seen, *q)
	}
	r.mu.Unlock()
	r.World.Submit(reqs)
}

func (r *recorder) all() []request.Request {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]request.Request(nil), r.seen...)
}

// TestStreamRetriesReportTheirAge breaks the connection that carries a command:
// the command arrives again as a retry of the first attempt, and a later
// command does not count as a retry.
func TestStreamRetriesReportTheirAge(t *testing.T) {
	w := &recorder{World: rpctest.New()}
	defer w.Close()
	serve := func(addr string) (*services.Server, string, chan error) {
		l, err := net.Listen("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		deps := w.Services()
		deps.Entity.Runtime = w
		s, ended := services.NewServer(deps, edge.Options{NodeID: "n1"}), make(chan error, 1)
		go func() { ended <- s.Serve(l) }()
		return s, l.Addr().String(), ended
	}
	cut, cancel := context.WithCancel(t.Context())
	cancel()
	first, addr, ended := serve(loopback.Host() + ":0")
	w.Pause()
	s := dial(t, addr).Stream(client.StreamOptions{})
	answers := make(chan error, 2)
	done := func(_ client.Reply, err error) { answers <- err }
	before := time.Now()
	if err := s.Send(t.Context(), add("a", 1), done); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the first attempt", func() bool { return len(w.all()) == 1 })
	after := time.Now()
	first.Shutdown(cut)
	<-ended
	second, _, ended := serve(addr)
	eventually(t, "the second attempt", func() bool { return len(w.all()) == 2 })
	if err := s.Send(t.Context(), add("a", 2), done); err != nil {
		t.Fatal(err)
	}
	eventually(t, "another command", func() bool { return len(w.all()) == 3 })
	w.Resume()
	for range 2 {
		if err := <-answers; err != nil {
			t.Error(err)
		}
	}
	if err := s.Close(t.Context()); err != nil {
		t.Error(err)
	}
	second.Shutdown(cut)
	<-ended
	for i, q := range w.all() {
		// The age has a resolution of a millisecond, and excludes the transport
		// time.
		if q.Again != (i == 1) || i == 1 && (q.First.Before(before.Add(-2*time.Millisecond)) || q.ID != w.all()[0].ID) {
			t.Errorf("attempt %d: again %v, first tried at %s, where the first was between 0s and %s", i+1, q.Again, q.First.Sub(before), after.Sub(before))
		}
	}
}
