package client_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/api/client"
	"github.com/hostd/hostd/tests/support/rpctest"
)

// others returns the nodes of a second cluster.
func others(t *testing.T, n int) *rpctest.Fleet {
	t.Helper()
	f := fleet(t, n)
	f.ClusterID = "elsewhere"
	for i := range n {
		f.Node(i + 1).Kill()
		if err := f.Node(i + 1).Start(); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

// A client uses only the cluster that answered it first. It sends nothing to
// the nodes of a different cluster, and reports that cluster if no other node
// is left.
func TestClientUsesOnlyFirstCluster(t *testing.T) {
	f, other := fleet(t, 1), others(t, 1)
	for _, given := range []bool{false, true} {
		c, err := client.New([]string{f.Node(1).Addr, other.Node(1).Addr}, client.Options{
			GivenOnly: given, MinBackoff: time.Millisecond, MaxBackoff: 20 * time.Millisecond, Timeout: 1500 * time.Millisecond,
		})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		id := fmt.Sprint("given", given)
		if _, err := c.Send(t.Context(), add(id, 1)); err != nil {
			t.Fatal(err)
		}
		if o, err := c.Cluster(t.Context()); err != nil || o.GetClusterId() != "world" {
			t.Fatalf("%v, %v", o, err)
		}
		f.Node(1).Kill()
		if r, err := c.Send(t.Context(), add(id, 1)); err == nil {
			t.Errorf("ran in another cluster: %+v", r)
		}
		if ran := other.World.Commands(counter(id)); len(ran) > 0 {
			t.Errorf("another cluster ran %v", ran)
		}
		if err := f.Node(1).Start(); err != nil {
			t.Fatal(err)
		}
		for range 5 {
			if _, err := c.Send(t.Context(), add(id, 1)); err != nil {
				t.Fatal(err)
			}
		}
		// An address may be reassigned to a node of another cluster.
		f.Node(1).Kill()
		f.ClusterID = "anew"
		if err := f.Node(1).Start(); err != nil {
			t.Fatal(err)
		}
		before := len(f.World.Commands(counter(id)))
		_, err = c.Send(t.Context(), add(id, 1))
		var wrong *client.OtherClusterError
		if !errors.As(err, &wrong) || wrong.Wanted != "world" || wrong.Cluster == "world" {
			t.Errorf("without a node of the cluster: %v", err)
		}
		if _, err := c.Send(t.Context(), add(id, 1)); !errors.As(err, &wrong) || client.CodeOf(err) != connect.CodeFailedPrecondition {
			t.Errorf("again: %v", err)
		}
		if _, err := c.Cluster(t.Context()); !errors.As(err, &wrong) {
			t.Errorf("of another cluster: %v", err)
		}
		if now := len(f.World.Commands(counter(id))); now != before {
			t.Errorf("%d commands ran in another cluster", now-before)
		}
		f.Node(1).Kill()
		f.ClusterID = "world"
		if err := f.Node(1).Start(); err != nil {
			t.Fatal(err)
		}
	}
}

// A stream sends commands only to its own cluster, and they succeed if a node
// of that cluster is left.
func TestStreamUsesOnlyFirstCluster(t *testing.T) {
	f, other := fleet(t, 1), others(t, 1)
	c, err := client.New([]string{f.Node(1).Addr, other.Node(1).Addr}, client.Options{MinBackoff: time.Millisecond, MaxBackoff: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s := c.Stream(client.StreamOptions{})
	defer s.Close(t.Context())
	if _, err := s.Call(t.Context(), add("a", 1)); err != nil {
		t.Fatal(err)
	}
	f.Node(1).Kill()
	answered := make(chan error, 1)
	if err := s.Send(t.Context(), add("b", 1), func(_ client.Reply, err error) { answered <- err }); err != nil {
		t.Fatal(err)
	}
	time.Sleep(200 * time.Millisecond) // the stream tries the other address
	if err := f.Node(1).Start(); err != nil {
		t.Fatal(err)
	}
	if err := <-answered; err != nil {
		t.Error(err)
	}
	if ran := other.World.Commands(counter("b")); len(ran) > 0 {
		t.Errorf("another cluster ran %v", ran)
	}
	if ran := f.World.Commands(counter("b")); len(ran) != 1 {
		t.Errorf("ran %v", ran)
	}
}
