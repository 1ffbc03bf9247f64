package client_test

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/hostd/hostd/api/client"
	"github.com/hostd/hostd/host/edge"
	"github.com/hostd/hostd/host/services"
	"github.com/hostd/hostd/tests/support/loopback"
	"github.com/hostd/hostd/tests/support/rpctest"
)

// running is a server in this process.
type running struct {
	server *services.Server
	ended  chan error
}

// start serves a world on an address; port 0 means any port.
func start(t testing.TB, w *rpctest.World, addr string, opts edge.Options) (*running, string) {
	t.Helper()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	opts.NodeID = "n1"
	r := &running{server: services.NewServer(w.Services(), opts), ended: make(chan error, 1)}
	go func() { r.ended <- r.server.Serve(l) }()
	return r, l.Addr().String()
}

// stop shuts a server down; if patience is 0, it closes open connections.
func (r *running) stop(t testing.TB, patience time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	r.server.Shutdown(ctx)
	if err := <-r.ended; err != nil {
		t.Errorf("serve: %v", err)
	}
}

// serve serves a world until the test ends.
func serve(t testing.TB, w *rpctest.World) (*running, string) {
	t.Helper()
	r, addr := start(t, w, loopback.Host()+":0", edge.Options{})
	t.Cleanup(func() {
		r.stop(t, 10*time.Second)
		w.Close()
	})
	return r, addr
}

func dial(t testing.TB, addrs ...string) *client.Client {
	t.Helper()
	c, err := client.New(addrs, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}
