package testkit

import (
	"context"
	"fmt"
	"testing"

	"github.com/hostd/hostd/api/client"
)

// counters is how many entities AddToCounters and CheckCounters take: enough
// for several shards.
const counters = 9

// AddToCounters adds one to each of some counters of the example of that name,
// and demands that all of them hold want then.
func AddToCounters(t *testing.T, c *client.Client, want int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	defer cancel()
	for i := range counters {
		reply, err := c.Send(ctx, client.Command{EntityType: "counter", EntityID: fmt.Sprint("c", i), Name: "add", Data: []byte(`{"amount":1}`)})
		if err != nil || string(reply.Data) != fmt.Sprintf(`{"total":%d}`, want) {
			t.Fatalf("counter %d: %s, %v, want %d", i, reply.Data, err, want)
		}
	}
}

// CheckCounters demands that the counters of AddToCounters hold want.
func CheckCounters(t *testing.T, c *client.Client, want int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	defer cancel()
	for i := range counters {
		reply, err := c.Query(ctx, client.Query{EntityType: "counter", EntityID: fmt.Sprint("c", i), Name: "total"})
		if err != nil || string(reply.Data) != fmt.Sprintf(`{"total":%d}`, want) {
			t.Fatalf("counter %d: %s, %v, want %d", i, reply.Data, err, want)
		}
	}
}
