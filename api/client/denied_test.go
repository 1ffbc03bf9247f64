package client

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/api/gen/hostd/cluster/v1/clusterv1connect"
	"github.com/hostd/hostd/host/edge"
	"github.com/hostd/hostd/host/services"
	"github.com/hostd/hostd/tests/support/rpctest"
)

// A caller that may send commands but may not read the cluster is served, and
// does not repeatedly ask for the leaders.
func TestClientWithoutReadRightStopsAskingForLeaders(t *testing.T) {
	w := rpctest.New()
	defer w.Close()
	handler := services.NewServer(w.Services(), edge.Options{NodeID: "n1"}).Handler()
	var asked atomic.Int32
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == clusterv1connect.ClusterServiceGetClusterProcedure {
			asked.Add(1)
			_ = connect.NewErrorWriter().Write(w, r, connect.NewError(connect.CodePermissionDenied, nil))
			return
		}
		handler.ServeHTTP(w, r)
	}))
	server.Config.Protocols = new(http.Protocols)
	server.Config.Protocols.SetHTTP1(true)
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Start()
	defer server.Close()
	c, err := New([]string{server.URL}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	send := func() {
		t.Helper()
		if _, err := c.Send(t.Context(), Command{EntityType: rpctest.Counter, EntityID: "a", Name: "add", Data: []byte(`{"amount":1}`)}); err != nil {
			t.Fatal(err)
		}
		c.learner.mu.Lock()
		defer c.learner.mu.Unlock()
		c.learner.last = time.Time{} // as if it were a long time ago
	}
	c.learner.stale.Store(true)
	for range 5 {
		send()
	}
	if n := asked.Load(); n != 1 {
		t.Errorf("it has asked %d times", n)
	}
	c.learner.mu.Lock()
	if !c.learner.quiet.After(time.Now()) {
		t.Error("it will ask at once")
	}
	c.learner.quiet = time.Time{}
	c.learner.mu.Unlock()
	send()
	if n := asked.Load(); n != 2 {
		t.Errorf("it has asked %d times, and may have the right by now", n)
	}
}
