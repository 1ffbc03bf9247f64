package client_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/api/client"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/tests/support/rpctest"
)

var errStored = errors.New("enough is stored")

// TestProjectionAppliesOnce checks that a projection that stores its cursor
// with its data applies each event once, even if it stops or nodes die.
func TestProjectionAppliesOnce(t *testing.T) {
	f := fleet(t, 2)
	f.Forwards = true
	spread(f, 2)
	c, err := client.New([]string{f.Node(1).Addr, f.Node(2).Addr}, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	const entities, rounds = 7, 30
	send := func() {
		for i := range entities {
			if _, err := c.Send(t.Context(), client.Command{EntityType: rpctest.Counter, EntityID: fmt.Sprint("e", i), Name: "add", Data: []byte(`{"amount":1}`)}); err != nil {
				t.Fatal(err)
			}
		}
	}
	var stored struct { // fields that a transaction would change together
		cursor string
		last   map[string]uint64
		events int
	}
	stored.last = map[string]uint64{}
	for round := range rounds {
		send()
		if round%5 == 2 {
			f.Node(1).Kill()
			for s := sharding.ShardID(1); s <= rpctest.Shards; s++ {
				f.Move(s, "n2")
			}
		}
		if round%5 == 4 {
			if err := f.Node(1).Start(); err != nil {
				t.Fatal(err)
			}
			f.Move(1, "n1")
		}
		p := client.Projection{
			Client: c, MaxEvents: 3, Subscription: client.Subscription{EntityType: rpctest.Counter, Cursor: stored.cursor, Follow: round%2 == 0},
			Apply: func(_ context.Context, b client.Batch) error {
				if len(b.Events) > 3 || b.Events[0].Cursor() != b.Cursor || b.Lag < 0 {
					t.Errorf("batch of %d events, %s behind", len(b.Events), b.Lag)
				}
				for _, e := range b.Events {
					if e.Sequence != stored.last[e.EntityID]+1 {
						t.Errorf("event %d of %s after %d", e.Sequence, e.EntityID, stored.last[e.EntityID])
					}
					stored.last[e.EntityID] = e.Sequence
					stored.events++
				}
				stored.cursor = b.Cursor
				if stored.events >= entities*(round+1) {
					return errStored
				}
				return nil
			},
		}
		if err := p.Run(t.Context()); err != nil && !errors.Is(err, errStored) {
			t.Fatalf("round %d: %v", round, err)
		}
		if stored.events != entities*(round+1) {
			t.Fatalf("round %d: %d events", round, stored.events)
		}
	}
}

// TestSubscribeEnds checks that an error after which a subscription cannot
// resume ends the iteration, with its code.
func TestSubscribeEnds(t *testing.T) {
	f := fleet(t, 1)
	c, err := client.New([]string{f.Node(1).Addr}, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var codes []connect.Code
	for _, s := range []client.Subscription{{EntityType: "nothing"}, {EntityType: rpctest.Counter, Cursor: "x", Follow: true}} {
		for _, err := range c.Subscribe(t.Context(), s) {
			codes = append(codes, client.CodeOf(err))
		}
	}
	if !slices.Equal(codes, []connect.Code{connect.CodeNotFound, connect.CodeInvalidArgument}) {
		t.Errorf("ended with %v", codes)
	}
}
