package client_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hostd/hostd/api/client"
	"github.com/hostd/hostd/host/clusterapi"
	"github.com/hostd/hostd/host/edge"
	"github.com/hostd/hostd/tests/support/loopback"
	"github.com/hostd/hostd/tests/support/rpctest"
)

// A watch continues at a second node of the cluster when the watched node
// stops.
func TestWatchContinuesOnAnotherNode(t *testing.T) {
	w := rpctest.New()
	defer w.Close()
	first, one := start(t, w, loopback.Host()+":0", edge.Options{Admin: true})
	second, two := start(t, w, loopback.Host()+":0", edge.Options{Admin: true})
	defer second.stop(t, 10*time.Second)
	c := dial(t, one, two)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, key := range []string{"a", "b", "c"} {
		if _, err := c.PutSetting(ctx, key, "old"); err != nil {
			t.Fatal(err)
		}
	}
	got, step := []string{}, 0
	for s, err := range c.WatchSettings(ctx, "") {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, fmt.Sprintf("%s=%s@%d", s.GetKey(), s.GetValue(), s.GetRevision()))
		if step++; step == 3 {
			first.stop(t, 10*time.Second)
			w.Nodes.Put(ctx, "b", "") // while no watch is open
			w.Nodes.Put(ctx, "c", "new")
		}
		if step == 5 {
			break
		}
	}
	if want := "[a=old@1 b=old@2 c=old@3 b=@5 c=new@5]"; fmt.Sprint(got) != want {
		t.Errorf("got %v, want %s", got, want)
	}
	n := 0
	for view, err := range c.WatchCluster(ctx) {
		if err != nil || len(view.GetMembers()) != 3 {
			t.Fatal(view, err)
		}
		if n++; n == 2 {
			if view.GetMembers()[2].GetStatus() != "down" {
				t.Errorf("%v", view)
			}
			break
		}
		if err := c.Down(ctx, "n3"); err != nil {
			t.Fatal(err)
		}
	}
}

func TestSettings(t *testing.T) {
	w := rpctest.New()
	_, addr := serve(t, w)
	c := dial(t, addr)
	if _, err := c.PutSetting(t.Context(), "a", "b"); client.CodeOf(err).String() != "permission_denied" {
		t.Errorf("without permission: %v", err)
	}
	w.Nodes.Put(t.Context(), "a", "b")
	if s, err := c.Setting(t.Context(), "a"); err != nil || s.GetValue() != "b" {
		t.Error(s, err)
	}
	if _, err := c.Setting(t.Context(), "absent"); !client.IsNotFound(err) {
		t.Errorf("an absent one: %v", err)
	}
	if list, revision, err := c.Settings(t.Context(), ""); err != nil || len(list) != 1 || revision != 1 {
		t.Error(list, revision, err)
	}
	// A list of more than one page is read completely.
	for i := range 150 {
		w.Nodes.Put(t.Context(), fmt.Sprintf("many.%03d", i), strings.Repeat("v", 16<<10))
	}
	if list, revision, err := c.Settings(t.Context(), "many."); err != nil || len(list) != 150 || list[149].GetKey() != "many.149" || revision != 151 {
		t.Error(len(list), revision, err)
	}
	if _, err := c.Rebalance(t.Context()); client.CodeOf(err).String() != "permission_denied" {
		t.Errorf("rebalance without permission: %v", err)
	}
	// A watch that is not allowed ends with an error that states the reason.
	w.Nodes.Fail(clusterapi.ErrUnknownNode)
	for _, err := range c.WatchCluster(t.Context()) {
		if !client.IsNotFound(err) {
			t.Errorf("got %v", err)
		}
	}
}

// If an order is still in progress at the deadline, the caller gets the node's
// message about it.
func TestUnfinishedOrderReturnsNodesMessage(t *testing.T) {
	w := rpctest.New()
	defer w.Close()
	r, addr := start(t, w, loopback.Host()+":0", edge.Options{Admin: true})
	defer r.stop(t, 10*time.Second)
	hurried, err := client.New([]string{addr}, client.Options{Timeout: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer hurried.Close()
	c, err := client.New([]string{addr}, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	err = hurried.MoveShard(t.Context(), 1, "n2")
	if client.CodeOf(err).String() != "deadline_exceeded" || !strings.Contains(err.Error(), "the transfer to n2 continues") {
		t.Errorf("a move that nobody carries out: %v", err)
	}
	moved := make(chan error, 1)
	go func() { moved <- c.MoveShard(context.Background(), 2, "n3") }()
	for len(moved) == 0 {
		w.Nodes.Step()
	}
	if err := <-moved; err != nil {
		t.Error(err)
	}
	left := make(chan error, 1)
	go func() { left <- c.Leave(context.Background(), "n3") }()
	for len(left) == 0 {
		w.Nodes.Step()
	}
	if err := <-left; err != nil {
		t.Error(err)
	}
	if err := c.Resume(t.Context(), "n3"); !client.IsNotFound(err) {
		t.Errorf("resume of a node that has left: %v", err)
	}
}
