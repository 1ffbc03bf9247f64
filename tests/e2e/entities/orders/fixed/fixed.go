// Fixed is Before with a different query. The format of the state is the same.
package main

import hostd "github.com/hostd/hostd/guest-sdk/go"

// Item is an ordered item.
type Item struct {
	SKU   string `json:"sku"`
	Count int64  `json:"count"`
	Cents int64  `json:"cents"` // price of one
}

// State is the state of an order.
type State struct {
	Items []Item `json:"items"`
}

// Placed is the event.
type Placed Item

// Type declares the entity type.
func Type() *hostd.Type[State] {
	orders := hostd.Entity[State]("order", hostd.JSON, hostd.SnapshotEvery(4), hostd.StateVersion(1))
	hostd.Event(orders, "placed", func(s *State, e Placed) { s.Items = append(s.Items, Item(e)) })
	hostd.Command(orders, "place", func(c *hostd.Context, s *State, cmd Item) (State, error) {
		c.Emit(Placed(cmd))
		return *s, nil
	})
	hostd.Query(orders, "state", func(_ *hostd.View, s *State, _ hostd.None) (State, error) { return *s, nil })
	hostd.Query(orders, "count", func(_ *hostd.View, s *State, _ hostd.None) (int, error) { return len(s.Items), nil })
	return orders
}

var _ = hostd.Serve("orders", "1.0.1", Type())

func main() {}
