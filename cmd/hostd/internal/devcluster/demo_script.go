package devcluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hostd/hostd/api/client"
)

// demoGuests are the example modules that the demonstration uses.
var demoGuests = []string{"counter", "account", "chain"}

// demoCommands are the commands that the demonstration sends, in order.
var demoCommands = []client.Command{
	{EntityType: "counter", EntityID: "visits", Name: "add", Data: []byte(`{"amount":3}`)},
	{EntityType: "counter", EntityID: "visits", Name: "add", Data: []byte(`{"amount":4}`)},
	{EntityType: "account", EntityID: "alice", Name: "open"},
	{EntityType: "account", EntityID: "alice", Name: "deposit", Data: []byte(`{"amount":100}`)},
	{EntityType: "account", EntityID: "alice", Name: "withdraw", Data: []byte(`{"amount":30}`)},
}

// demoAgain is the command after the kill: it opens an account that is open
// already. Its acknowledgement is durable, but it changes nothing.
var demoAgain = client.Command{EntityType: "account", EntityID: "alice", Name: "open"}

// demoLinks is the number of links of the chain.
const demoLinks = 100

// demoQueries are the queries that the demonstration sends before and after
// the kill.
var demoQueries = []client.Query{
	{EntityType: "counter", EntityID: "visits", Name: "total"},
	{EntityType: "account", EntityID: "alice", Name: "balance"},
	{EntityType: "chain", EntityID: "proof", Name: "head"},
}

// demoID returns the id of the command at an index of demoCommands.
func demoID(i int) string { return fmt.Sprintf("demo-%d", i) }

func (d *demo) commands(ctx context.Context) error {
	for i, c := range demoCommands {
		c.ID = demoID(i)
		began := time.Now()
		reply, err := d.client.Send(ctx, c)
		if err != nil {
			return fmt.Errorf("%s %s: %w", c.EntityType, c.Name, err)
		}
		d.sent[c.ID] = reply
		fmt.Fprintf(d.w, "  %s %s %s %s -> %s  %s\n", c.EntityType, c.EntityID, c.Name, c.Data, reply.Data, time.Since(began).Round(10*time.Microsecond))
	}
	_, err := d.client.Send(ctx, client.Command{EntityType: "account", EntityID: "alice", Name: "withdraw", Data: []byte(`{"amount":1000}`)})
	var rejected *client.RejectedError
	if !errors.As(err, &rejected) || rejected.Code != "insufficient_funds" {
		return fmt.Errorf("a withdrawal beyond the balance was not rejected: %v", err)
	}
	fmt.Fprintf(d.w, "  account alice withdraw {\"amount\":1000} -> %v\n", err)
	return d.timeStep(fmt.Sprintf("%d links of a hash chain, one by one", demoLinks), func() error {
		for n := range demoLinks {
			c := client.Command{EntityType: "chain", EntityID: "proof", Name: "link", Data: fmt.Appendf(nil, `{"n":%d}`, n), ID: fmt.Sprintf("link-%d", n)}
			if _, err := d.client.Send(ctx, c); err != nil {
				return err
			}
		}
		return nil
	})
}

// answers runs every query, linearizably.
func (d *demo) answers(ctx context.Context) ([]string, error) {
	var out []string
	for _, q := range demoQueries {
		a, err := d.client.Query(ctx, q)
		if err != nil {
			return nil, fmt.Errorf("%s %s: %w", q.EntityType, q.Name, err)
		}
		out = append(out, fmt.Sprintf("%s %s %s -> %s (sequence %d)", q.EntityType, q.EntityID, q.Name, a.Data, a.Sequence))
	}
	return out, nil
}
