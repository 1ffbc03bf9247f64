package testkit

import (
	"context"
	"fmt"
	"testing"

	"github.com/hostd/hostd/api/client"
)

// counters is the number of entities that AddToCounters and CheckCounters use:
// enough for several shards.
const counters = 9

// AddToCounters adds one to each counter of the example module, and fails the
// test unless each total is then want.
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

// CheckCounters fails the test unless the counters of AddToCounters have the
// total want.
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
