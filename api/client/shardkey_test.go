package client_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/hostd/hostd/api/client"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/tests/support/rpctest"
)

// TestShardKeys checks that client and servers apply the same rules.
func TestShardKeys(t *testing.T) {
	for i, group := range []string{"", "customer", "t"} {
		for _, until := range []string{"", "-", "::", "-é"} {
			for j, id := range []string{"c42", "c42-1", "-c42", "c::4-é2", "--", "é::"} {
				n := uint32(1 + 97*i + j)
				key := client.ShardKey{Group: group, Until: until}
				rule := sharding.KeyRule{Group: group, Until: until}
				if got, want := key.ShardOf("t", id, n), rule.ShardOf(sharding.EntityID{Type: "t", ID: id}, n); got != uint32(want) {
					t.Errorf("%v of %s: %d, want %d", rule, id, got, want)
				}
			}
		}
	}
}

// TestUnknownTypesAreLookedUp checks that a client does not guess the shard of a type that
// nodes have not reported. It asks again, and then calls the leaders.
func TestUnknownTypesAreLookedUp(t *testing.T) {
	f := fleet(t, 3)
	f.Forwards = true
	f.Untold.Store(true)
	spread(f, 3)
	c := dial(t, f.Node(1).Addr)
	s := c.Stream(client.StreamOptions{})
	defer s.Close(t.Context())
	total := 0
	check := func(rounds int) {
		t.Helper()
		var left = make(chan error, 8*rounds)
		for range rounds {
			total++
			want := fmt.Sprintf(`{"total":%d}`, total)
			for e := range 8 {
				err := s.Send(t.Context(), add(fmt.Sprint("s", e), 1), func(r client.Reply, err error) {
					if err == nil && string(r.Data) != want {
						err = fmt.Errorf("%s, want %s", r.Data, want)
					}
					left <- err
				})
				if err != nil {
					t.Fatal(err)
				}
			}
		}
		for range 8 * rounds {
			if err := <-left; err != nil {
				t.Error(err)
			}
		}
		if _, err := c.Send(t.Context(), add("one", 1)); err != nil {
			t.Fatal(err)
		}
	}
	check(20)
	if strays(f, 3) == 0 {
		t.Fatal("nothing went astray: the test shows nothing")
	}
	f.Untold.Store(false)
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	for quiet := 0; quiet < 20; {
		if ctx.Err() != nil {
			t.Fatal("commands go astray for ever")
		}
		before := strays(f, 3)
		check(2)
		for e := range 8 {
			if _, err := c.Send(ctx, add(fmt.Sprint("u", e), 1)); err != nil {
				t.Fatal(err)
			}
		}
		if quiet++; strays(f, 3) != before {
			quiet = 0
		}
	}
	if d, err := c.Entity(t.Context(), rpctest.Counter, "s0"); err != nil || d.GetSequence() != uint64(total) {
		t.Errorf("%v, %v", d, err)
	}
}
