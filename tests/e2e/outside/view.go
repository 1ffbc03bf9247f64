package outside

import (
	"context"
	"encoding/json"

	"github.com/hostd/hostd/api/client"
)

// totals is a view of all payments: the amount of each, their sum, and the
// cursor after the last event in the view.
type totals struct {
	Cursor string           `json:"cursor"`
	Asked  map[string]int64 `json:"asked"` // cents by payment
	Cents  int64            `json:"cents"` // sum of all payments
}

// view maintains the totals in a file until ctx ends or an error occurs.
func view(ctx context.Context, c *client.Client, file string) error {
	now := totals{Asked: map[string]int64{}}
	if err := load(file, &now); err != nil {
		return err
	}
	p := client.Projection{
		Client:       c,
		Subscription: client.Subscription{EntityType: "payment", Cursor: now.Cursor, Follow: true},
		Apply: func(_ context.Context, b client.Batch) error {
			for _, e := range b.Events {
				var asked struct{ Cents int64 }
				if e.Type != "requested" {
					continue
				}
				if err := json.Unmarshal(e.Data, &asked); err != nil {
					return err
				}
				now.Asked[e.EntityID] += asked.Cents
				now.Cents += asked.Cents
			}
			now.Cursor = b.Cursor
			return store(file, now) // store the view and its cursor together, both or neither
		},
	}
	return p.Run(ctx)
}
